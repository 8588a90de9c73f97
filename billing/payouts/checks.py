"""A marketplace whose payout settings cannot be fulfilled does not start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register

from billing.money import BPS_WHOLE
from billing.rails.loopback import why_reachable
from billing.rails.registry import RAILS

HOURS_OF_A_DAY = 24


@register(Tags.security)
def check_rails(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Rails are named right, and one that only pretends is on loopback only."""
    names = [name for name in settings.SOUK_PAYOUT_RAILS if name]
    found: list[CheckMessage] = [
        Error(f"SOUK_PAYOUT_RAILS names {name!r}; there are: {', '.join(RAILS)}.", id="souk.E040")
        for name in names
        if name not in RAILS
    ]
    pretended = [name for name in names if name in RAILS and RAILS[name].is_pretended]
    why = why_reachable() if pretended else None
    if why is not None:
        found.append(
            Error(
                f"SOUK_PAYOUT_RAILS has the {pretended[0]} rail, which pays nobody, and this site is reachable: {why}.",
                hint=f"Take {pretended[0]} out of SOUK_PAYOUT_RAILS.",
                id="souk.E041",
            )
        )
    if not 0 <= settings.SOUK_PAYOUT_HOUR < HOURS_OF_A_DAY:
        found.append(Error("SOUK_PAYOUT_HOUR is an hour of the day, 0 to 23.", id="souk.E042"))
    if not 0 <= settings.SOUK_RESERVE_BPS <= BPS_WHOLE:
        found.append(Error(f"SOUK_RESERVE_BPS is a part of {BPS_WHOLE}.", id="souk.E043"))
    days = (settings.SOUK_RESERVE_DAYS, settings.SOUK_PROBATION_DAYS, settings.SOUK_PROBATION_SETTLEMENTS)
    if min(*days, settings.SOUK_PAYOUT_CHANGE_SECONDS, settings.SOUK_PAYOUT_MINIMUM_USD_MICROS) < 0:
        found.append(
            Error("What SOUK_RESERVE_, SOUK_PROBATION_ and SOUK_PAYOUT_ count is not below 0.", id="souk.E044")
        )
    return found


@register(Tags.security)
def check_challenge_windows(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Nobody waits longer for having a record."""
    if -1 <= settings.SOUK_FAST_RELEASE_SECONDS <= settings.SOUK_CHALLENGE_SECONDS:
        return []
    return [Error("SOUK_FAST_RELEASE_SECONDS is -1, or 0 to SOUK_CHALLENGE_SECONDS.", id="souk.E045")]
