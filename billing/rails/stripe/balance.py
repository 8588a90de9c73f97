"""What we have at Stripe, and what happened there."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from billing.rails.stripe.calls import StripeCalls
from billing.rails.stripe.records import CURRENCY, PAYMENTS_BALANCE, Booking, EventRecord

log = logging.getLogger(__name__)


class BalanceCalls(StripeCalls):
    """Stripe's own books of our account, and its list of events."""

    def balance_cents(self) -> int:
        """All of our dollars at Stripe, those that are not available yet included."""
        json = self._get("/v1/balance")
        parts = [*json["available"], *json["pending"], *(json.get("connect_reserved") or [])]
        return sum(part["amount"] for part in parts if part["currency"] == CURRENCY)

    def fetch_booking(self, booking_id: str) -> Booking:
        return Booking.read(self._get(f"/v1/balance_transactions/{booking_id}"))

    def list_bookings(self, since: datetime) -> Iterator[Booking]:
        """Every change of our payments balance since then, oldest first; StripeTooLong after as many as it can read.

        Stripe lists those of its other balances (of cards that it issues, of reserves) among them.
        """
        for part in self._list_since("/v1/balance_transactions", since):
            yield from (one for one in map(Booking.read, part) if one.balance == PAYMENTS_BALANCE)

    def list_events(self, since: datetime) -> Iterator[list[EventRecord]]:
        """Every event since then that can be read, oldest first, in parts; one that cannot must not hide the others.

        Raises StripeTooLong after as many parts as it can read.
        """
        for part in self._list_since("/v1/events", since):
            yield list(_readable(part))


def _readable(part: list[Mapping[str, Any]]) -> Iterator[EventRecord]:
    for one in part:
        try:
            yield EventRecord.read(one)
        except (ValueError, LookupError, TypeError, AttributeError):
            log.exception("An event in Stripe's list cannot be read.")
