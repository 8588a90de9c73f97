"""When a job's locked token price is kept, when it is replaced, and how much is held at the new price. Pure.

A lower price of the token is the customer's loss: more of it pays the same dollars. So a higher price replaces the
locked one by itself, and a lower one only as far as the customer has agreed: by the quote, by confirming a lower price,
or by the job file for every price.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from jobs.payment.terms import Payment

BPS_WHOLE: Final = 10_000


class PriceReason(StrEnum):
    """Why a price is the job's; the quote's own needs no reason."""

    RENEWED = "renewed"  # it moved too little to be changed
    ROSE = "rose"  # the token is worth more: less of it is held
    AGREED = "agreed"  # it fell again, no lower than the customer had agreed to before
    ALLOWED = "allowed"  # it fell, and the job file allows it with `requote`
    CONFIRMED = "confirmed"  # it fell, and the customer confirmed it


@dataclass(frozen=True)
class Decision:
    """The price to continue at, and the reason; without a reason the customer has to confirm it first."""

    usd_micros_per_token: int
    reason: PriceReason | None


def decide(*, locked: int, agreed: int, current: int, move_bps: int, is_allowed: bool) -> Decision:
    """What becomes of a locked price, by the price of now; prices in micro-USD a whole token.

    `agreed`: the lowest price that the customer confirmed. Small moves are measured from what is locked, never from the
    last look, so that many of them do not add up unseen.
    """
    if is_near(current, locked, move_bps):
        return Decision(locked, PriceReason.RENEWED)
    if current > locked:
        return Decision(current, PriceReason.ROSE)
    if current >= agreed:
        return Decision(current, PriceReason.AGREED)
    if agreed < locked and is_near(current, agreed, move_bps):
        return Decision(agreed, PriceReason.AGREED)
    return Decision(current, PriceReason.ALLOWED if is_allowed else None)


def is_near(price: int, reference: int, bps: int) -> bool:
    """Whether it is at most so many basis points of the reference away from it."""
    return abs(price - reference) * BPS_WHOLE <= bps * reference


def units_due(payment: Payment, cap_usd_micros: int, *, charged_usd_micros: int = 0, charged_units: int = 0) -> int:
    """Base units that cover a cap of which this much was charged at earlier prices: what is held, to the unit."""
    return charged_units + payment.units_up(max(0, cap_usd_micros - charged_usd_micros))
