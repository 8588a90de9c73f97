"""What we have at Stripe, and what happened there."""

from __future__ import annotations

import logging
from datetime import datetime

from billing.rails.stripe_asking import Asking
from billing.rails.stripe_records import CURRENCY, Booking, EventRecord

log = logging.getLogger(__name__)


class Books(Asking):
    """Stripe's own books of our account, and its list of events."""

    def balance_cents(self) -> int:
        """All of our dollars at Stripe, those that are not available yet included."""
        json = self._get("/v1/balance")
        parts = [*json["available"], *json["pending"], *(json.get("connect_reserved") or [])]
        return sum(part["amount"] for part in parts if part["currency"] == CURRENCY)

    def fetch_booking(self, booking_id: str) -> Booking:
        return Booking.read(self._get(f"/v1/balance_transactions/{booking_id}"))

    def list_bookings(self, since: datetime) -> list[Booking]:
        """Every change of our balance since then, oldest first."""
        params = {"created": {"gte": int(since.timestamp())}}
        return [Booking.read(one) for one in self._list("/v1/balance_transactions", params)][::-1]

    def list_events(self, since: datetime) -> list[EventRecord]:
        """Every event since then that can be read, oldest first: one that cannot must not hide the others."""
        params = {"created": {"gte": int(since.timestamp())}}
        records = []
        for one in self._list("/v1/events", params):
            try:
                records.append(EventRecord.read(one))
            except (ValueError, LookupError, TypeError, AttributeError):
                log.exception("An event in Stripe's list cannot be read.")
        return records[::-1]
