"""Whose address counts: the connection's, and a header's only as far as trusted proxies wrote it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.checks import run_checks
from django.test import Client, RequestFactory
from pytest_django import Settings
from rest_framework.test import APIClient

from marketplace.foundation.addresses import untrusted_proxies
from marketplace.foundation.addresses.client_address import client_address
from marketplace.foundation.addresses.forwarded import counted_address
from marketplace.foundation.throttles import ScopedThrottle

PROXY, MALLORY = "10.0.0.2", "203.0.113.9"


def seen(trusted: str, settings: Settings, *, forwarded: str = "", remote: str = PROXY) -> str:
    settings.SOUK_TRUSTED_PROXIES = trusted
    headers = {"HTTP_X_FORWARDED_FOR": forwarded} if forwarded else {}
    return client_address(RequestFactory().get("/", REMOTE_ADDR=remote, **headers))


@pytest.mark.parametrize(
    ("trusted", "forwarded", "remote", "expected"),
    [
        ("", "198.51.100.1", MALLORY, MALLORY),  # by default no header is believed
        ("", "", MALLORY, MALLORY),
        ("1", MALLORY, PROXY, MALLORY),
        ("1", f"198.51.100.1, {MALLORY}", PROXY, MALLORY),  # what Mallory wrote herself stands further left
        ("2", f"198.51.100.1, {MALLORY}, 10.0.0.1", PROXY, MALLORY),
        ("2", MALLORY, PROXY, PROXY),  # one proxy was passed by: nothing in the header is vouched for
        ("1", "not an address", PROXY, PROXY),
        ("10.0.0.0/8", f"198.51.100.1, {MALLORY}", PROXY, MALLORY),
        ("10.0.0.0/8", f"198.51.100.1, {MALLORY}, 10.0.0.1", PROXY, MALLORY),
        ("10.0.0.0/8", "198.51.100.1", MALLORY, MALLORY),  # not by a trusted proxy
        ("10.0.0.0/8", "rubbish, 10.0.0.1", PROXY, "10.0.0.1"),
        ("10.0.0.0/8", f"[2001:db8::1]:443, {MALLORY}:1234", PROXY, MALLORY),
        ("127.0.0.1, 10.0.0.0/8", MALLORY, "::ffff:127.0.0.1", MALLORY),
        ("1", MALLORY, "", MALLORY),  # a proxy on a Unix socket has no address
        ("", "", "", "unknown"),
    ],
)
def test_only_what_trusted_proxies_wrote_is_believed(
    settings: Settings, trusted: str, forwarded: str, remote: str, expected: str
) -> None:
    assert seen(trusted, settings, forwarded=forwarded, remote=remote) == expected


def test_a_whole_ipv6_network_of_one_customer_counts_once() -> None:
    assert counted_address("2001:db8:1:2:aaaa::1") == counted_address("2001:db8:1:2::ffff") == "2001:db8:1:2::/64"
    assert counted_address(MALLORY) == MALLORY


@pytest.mark.django_db
def test_an_invented_forwarded_address_escapes_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScopedThrottle, "THROTTLE_RATES", {"signin": "2/min"})
    body = {"email": "nobody@example.org", "password": "wrong"}
    answers = [
        APIClient().post("/api/v1/login", body, format="json", HTTP_X_FORWARDED_FOR=f"198.51.100.{each}").status_code
        for each in range(3)
    ]
    assert answers == [401, 401, 429]


@pytest.mark.django_db
def test_a_visitor_behind_a_trusted_proxy_reads_no_metrics(settings: Settings) -> None:
    settings.SOUK_TRUSTED_PROXIES = "127.0.0.1"
    assert Client().get("/metrics", HTTP_X_FORWARDED_FOR=MALLORY).status_code == 403
    assert Client().get("/metrics", HTTP_X_FORWARDED_FOR="127.0.0.1").status_code == 403
    assert Client().get("/metrics").status_code == 200


@pytest.mark.parametrize("wrong", ["-1", "21", "10.0.0.0/33", "proxy.example.org", "0.0.0.0/0"])
def test_a_server_with_unusable_trusted_proxies_does_not_start(settings: Settings, wrong: str) -> None:
    settings.SOUK_TRUSTED_PROXIES = wrong
    assert "souk.E011" in {found.id for found in run_checks(tags=["security"])}


def test_https_without_a_trusted_proxy_is_warned_of(settings: Settings) -> None:
    settings.SOUK_API_URL, settings.SOUK_TRUSTED_PROXIES = "https://souk.example", ""
    assert "souk.W002" in {found.id for found in run_checks(tags=["security"])}


@pytest.fixture
def nothing_noticed() -> Iterator[None]:
    untrusted_proxies.forget()
    yield
    untrusted_proxies.forget()


def warnings(settings: Settings) -> list[str]:
    settings.SOUK_API_URL = "http://127.0.0.1:8000"  # says nothing of a proxy
    return [str(found.msg) for found in run_checks(tags=["security"]) if found.id == "souk.W003"]


@pytest.mark.usefixtures("nothing_noticed")
@pytest.mark.parametrize("remote", ["127.0.0.1", "10.0.0.2", ""])
def test_a_proxy_that_nobody_trusts_is_warned_of_in_log_and_check(
    settings: Settings, caplog: pytest.LogCaptureFixture, remote: str
) -> None:
    assert warnings(settings) == []
    for _ in range(3):
        seen("", settings, forwarded=MALLORY, remote=remote)
    assert caplog.text.count("SOUK_TRUSTED_PROXIES is empty") == 1  # not once a request
    assert "SOUK_TRUSTED_PROXIES names none" in warnings(settings)[0]


@pytest.mark.usefixtures("nothing_noticed")
@pytest.mark.parametrize(
    ("trusted", "forwarded", "remote"), [("", MALLORY, MALLORY), ("1", MALLORY, PROXY), ("", "", PROXY)]
)
def test_neither_a_strangers_header_nor_a_trusted_proxy_is_warned_of(
    settings: Settings, caplog: pytest.LogCaptureFixture, trusted: str, forwarded: str, remote: str
) -> None:
    seen(trusted, settings, forwarded=forwarded, remote=remote)
    assert "SOUK_TRUSTED_PROXIES" not in caplog.text
    settings.SOUK_TRUSTED_PROXIES = ""
    assert warnings(settings) == []
