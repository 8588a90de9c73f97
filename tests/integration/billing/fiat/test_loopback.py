"""Fake money starts on loopback only; elsewhere the error has the reason."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from billing.rails import loopback


@pytest.fixture
def private(settings: Settings) -> Settings:
    settings.SOUK_FAKE_MONEY = True
    settings.SOUK_API_URL = "http://127.0.0.1:8000"
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
    settings.SOUK_BIND = "127.0.0.1"
    return settings


def test_a_site_on_loopback_may_pretend(private: Settings) -> None:
    assert loopback.is_fake_money_on("The card") and loopback.check_fake_money(None) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SOUK_API_URL", "https://market.example"),
        ("SOUK_API_URL", "http://127.0.0.1.evil.example"),
        ("SOUK_API_URL", "http://10.0.0.5:8000"),
        ("ALLOWED_HOSTS", ["127.0.0.1", "market.example"]),
        ("ALLOWED_HOSTS", ["*"]),
        ("SOUK_BIND", "0.0.0.0"),
        ("SOUK_BIND", "::"),
        ("SOUK_BIND", ""),
    ],
)
def test_a_site_that_may_be_reached_refuses(private: Settings, name: str, value: Any) -> None:
    setattr(private, name, value)
    with pytest.raises(loopback.FakeMoneyRefused, match="can be reached from elsewhere"):
        loopback.is_fake_money_on("The card")
    assert [error.id for error in loopback.check_fake_money(None)] == ["souk.E020"]


def test_real_money_may_be_reached_from_anywhere(private: Settings) -> None:
    private.SOUK_FAKE_MONEY = False
    private.SOUK_BIND = "0.0.0.0"
    assert not loopback.is_fake_money_on("The card") and loopback.check_fake_money(None) == []
