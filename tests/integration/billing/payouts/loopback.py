"""Where pretended money is allowed: a site that only its own computer reaches."""

from __future__ import annotations

from pytest_django import Settings


def be_on_loopback(settings: Settings) -> None:
    settings.SOUK_BIND = "127.0.0.1"
    settings.ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
    settings.SOUK_PAYOUT_RAILS = ["fake"]
