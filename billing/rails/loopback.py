"""Pretended money is only for a site that nobody but its own computer can reach; everywhere else it refuses to start.

Three settings decide what reaches the site: the address in its links (SOUK_API_URL), the names that it answers to
(SOUK_ALLOWED_HOSTS) and the address that it listens on (SOUK_BIND, which `souk up` sets). Whatever is not known to be
loopback counts as reachable.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register

from billing.errors import BillingError


class FakeMoneyRefused(BillingError):
    message = "{what} only pretends to move money, and this site can be reached from elsewhere: {why}."
    code = "fake_money_refused"
    status = 503


def why_reachable() -> str | None:
    """Why others might reach this site; None where only its own computer can."""
    api_host = urlsplit(settings.SOUK_API_URL).hostname or ""
    if not _is_loopback(api_host):
        return f"SOUK_API_URL is {settings.SOUK_API_URL}"
    named = [host for host in settings.ALLOWED_HOSTS if not _is_loopback(host.strip("[]"))]
    if named:
        return f"SOUK_ALLOWED_HOSTS has {named[0]}"
    if not _is_loopback(settings.SOUK_BIND):
        return f"SOUK_BIND is {settings.SOUK_BIND}" if settings.SOUK_BIND else "SOUK_BIND does not say where it listens"
    return None


def require_loopback(what: str) -> None:
    """Return only where nobody else can reach this site; raises FakeMoneyRefused, which names `what` and the cause."""
    why = why_reachable()
    if why is not None:
        raise FakeMoneyRefused(what=what, why=why)


def is_fake_money_on(what: str) -> bool:
    """Whether `what` may pretend; raises FakeMoneyRefused where it is switched on and must not be."""
    if not settings.SOUK_FAKE_MONEY:
        return False
    require_loopback(what)
    return True


@register(Tags.security)
def check_fake_money(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """A marketplace that others can reach does not start with pretended money."""
    why = why_reachable() if settings.SOUK_FAKE_MONEY else None
    if why is None:
        return []
    return [
        Error(
            f"SOUK_FAKE_MONEY=1 hands out money that nobody paid, and this site can be reached: {why}.",
            hint="Unset SOUK_FAKE_MONEY; give SOUK_STRIPE_KEY for real payments.",
            id="souk.E020",
        )
    ]


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
