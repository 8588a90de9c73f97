"""The caps of a gang's leases, shared anew when it grows or shrinks: together they are never more than before.

A lease keeps what it may have earned by now, with receipts that are on their way. Of the rest each has a share by its
rate, as when the attempt was placed: so that all of them last equally long.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from jobs.leases.leasing import GRACE_MS
from jobs.models import Lease
from marketplace.foundation import clock
from provider_agent.protocol import charge

# The agent's meter may be a beat ahead of the server, and it learns of its new cap within one more.
MARGIN_MS: Final = 2 * GRACE_MS


class Amount(NamedTuple):
    """The same in micro-USD and in base units of what pays."""

    usd_micros: int
    units: int

    def plus(self, other: Amount) -> Amount:
        """Both together."""
        return Amount(self.usd_micros + other.usd_micros, self.units + other.units)


NOTHING: Final = Amount(0, 0)


def unspent_of(leases: Sequence[Lease]) -> Amount:
    """What live leases together may still cost, beside what they may have earned by now."""
    return _rest(leases, [earned_of(lease) for lease in leases])


def share_anew(leases: Sequence[Lease], *, more: Amount = NOTHING) -> None:
    """Share what live leases of a locked job may still cost between them, with `more` that one which ended has left.

    Those that have not run yet are among them. Rounded down: the sum of the caps, and `more`, is never exceeded.
    """
    earned = [earned_of(lease) for lease in leases]  # once: it grows with the time
    left = _rest(leases, earned).plus(more)
    rates = sum(lease.rate_usd_micros_per_hour for lease in leases) or 1
    for lease, kept in zip(leases, earned, strict=True):
        rate = lease.rate_usd_micros_per_hour
        lease.cap_usd_micros = kept.usd_micros + left.usd_micros * rate // rates
        lease.cap_units = kept.units + left.units * rate // rates
        terms = lease.payment_terms
        if terms is not None:
            lease.payment = terms.model_copy(update={"cap": lease.cap_units}).model_dump(mode="json")
        lease.save(update_fields=["cap_usd_micros", "cap_units", "payment"])


def earned_of(lease: Lease) -> Amount:
    """What a live lease has earned by now at most, by the clock, and within the margin earns until it knows its new
    cap; never more than its present one."""
    if lease.running_at is None:
        return NOTHING
    ms = (clock.now() - lease.running_at) // timedelta(milliseconds=1) + MARGIN_MS
    return Amount(
        min(charge(lease.rate_usd_micros_per_hour, ms), lease.cap_usd_micros),
        min(charge(lease.rate_units_per_hour, ms), int(lease.cap_units)),
    )


def left_of(leases: Sequence[Lease]) -> Amount:
    """What leases that have ended were not charged of what they might have cost."""
    ended = list(Lease.objects.filter(pk__in=[lease.pk for lease in leases]))
    return Amount(
        sum(lease.cap_usd_micros - (lease.charge_usd_micros or 0) for lease in ended),
        sum(int(lease.cap_units - (lease.charge_units or 0)) for lease in ended),
    )


def _rest(leases: Sequence[Lease], kept: Sequence[Amount]) -> Amount:
    return Amount(
        sum(lease.cap_usd_micros for lease in leases) - sum(each.usd_micros for each in kept),
        sum(int(lease.cap_units) for lease in leases) - sum(each.units for each in kept),
    )
