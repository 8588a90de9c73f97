"""What `souk up` gives its programs: a site that only this computer reaches may ask its people for less."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from marketplace.config.embedded import folder as data_folder
from marketplace.config.embedded.folder import DataFolder
from marketplace.config.embedded.marketplace import environment
from marketplace.config.embedded.processes import Addresses

NAMES = ("SOUK_STAFF_SECOND_FACTOR", "SOUK_EMAIL_VERIFICATION")


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataFolder]:
    """A data folder, and none of the operator's own settings."""
    for name in (*NAMES, "SOUK_SMTP_HOST", "SOUK_API_URL", "SOUK_ALLOWED_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    opened = data_folder.open_folder(tmp_path / "souk")
    yield opened
    opened.close()


def asked(opened: DataFolder, bind: str) -> list[str]:
    env = environment(opened, Addresses(bind, 8000), database_url="", redis_url="")
    return [env[name] for name in NAMES]


def test_only_a_site_on_loopback_asks_for_neither_factor_nor_mail(
    opened: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(opened, "127.0.0.1") == ["optional", "off"]
    assert asked(opened, "0.0.0.0") == ["required", "required"]
    monkeypatch.setenv("SOUK_SMTP_HOST", "mail.example")
    assert asked(opened, "127.0.0.1") == ["optional", "required"]
    monkeypatch.setenv("SOUK_API_URL", "https://souk.example")  # behind a proxy
    assert asked(opened, "127.0.0.1") == ["required", "required"]


def test_what_the_operator_has_set_stays(opened: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(NAMES, ("required", "required"), strict=True):
        monkeypatch.setenv(name, value)
    assert asked(opened, "127.0.0.1") == ["required", "required"]
