"""What a session to an endpoint takes from the environment, once."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from billing.chain.reading.transport import _read_environment

URL = "https://chain.example.org/rpc"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


def test_the_environments_proxy_and_certificates_are_used(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
    environment.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/own.pem")
    session = requests.Session()
    _read_environment(session, URL)
    environment.delenv("HTTPS_PROXY")
    environment.delenv("REQUESTS_CA_BUNDLE")
    found = session.merge_environment_settings(URL, {}, None, None, None)
    assert found["proxies"]["https"] == "http://proxy.example.org:3128"
    assert found["verify"] == "/etc/ssl/own.pem"


def test_an_endpoint_that_no_proxy_names_is_asked_directly(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
    environment.setenv("NO_PROXY", "example.org")
    session = requests.Session()
    _read_environment(session, URL)
    found = session.merge_environment_settings(URL, {}, None, None, None)
    assert not found["proxies"]
    assert found["verify"] is True


def test_who_has_a_netrc_is_known_by_it(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine chain.example.org login souk password secret\n")
    netrc.chmod(0o600)
    environment.setenv("NETRC", str(netrc))
    session = requests.Session()
    _read_environment(session, URL)
    assert session.prepare_request(requests.Request("POST", URL)).headers["Authorization"].startswith("Basic ")
