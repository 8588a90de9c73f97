"""Stripe's answers in our terms: frozen records of the fields that we use, and the ways in which a call can end.

RailError
|-- StripeBusy        nothing happened; the same call may succeed later
|-- StripeUnknown     it may have happened: look it up before anything is sent again
|   `-- StripeTooLong   a list has more pages than are read at once
`-- StripeRefused     nothing happened, and the same call never will
    |-- StripeMissing   there is no such thing
    `-- CardDeclined    the bank declined
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from billing.rails.errors import RailError

CURRENCY: Final = "usd"
NAMED_IN_EVENTS: Final = ("id", "object", "payment_intent", "customer", "charge")  # what handlers look up
NAME_CHARACTERS_MAX: Final = 120
PAYMENTS_BALANCE: Final = "payments"  # the balance that /v1/balance shows; entries of older versions name none
Json = Mapping[str, Any]


class StripeBusy(RailError):
    """Stripe did not take the call; nothing happened."""


class StripeUnknown(RailError):
    """No usable answer came; the call may have had its effect. `is_replay`: asking with the same key is of no use."""

    def __init__(self, message: str, *, is_replay: bool = False) -> None:
        self.is_replay = is_replay
        super().__init__(message)


class StripeTooLong(StripeUnknown):
    """A list has more pages than are read at once; `newest` is when its first row was created."""

    def __init__(self, message: str, *, newest: int = 0) -> None:
        self.newest = newest
        super().__init__(message)


class StripeRefused(RailError):
    """Stripe refused; nothing happened. `is_replay`: it repeats an answer from memory, and has not tried again."""

    def __init__(self, message: str, *, code: str = "", is_replay: bool = False) -> None:
        self.code, self.message, self.is_replay = code, message, is_replay
        super().__init__(f"{code}: {message}" if code else message)


class StripeMissing(StripeRefused):
    """Stripe knows no such thing."""


class CardDeclined(StripeRefused):
    """The bank, or Stripe in its place, declined the card. `intent_id` is the payment that stays unpaid."""

    def __init__(self, message: str, *, code: str = "", intent_id: str = "") -> None:
        self.intent_id = intent_id
        super().__init__(message, code=code)


@dataclass(frozen=True)
class Booking:
    """One change of our balance at Stripe; the balance changes by `amount_cents - fee_cents`."""

    id: str
    type: str
    source: str
    amount_cents: int
    fee_cents: int
    currency: str
    at: datetime
    balance: str = PAYMENTS_BALANCE  # which of our balances at Stripe it changes

    @classmethod
    def read(cls, json: Json) -> Booking:
        return cls(
            id=json["id"],
            type=json["type"],
            source=id_of(json.get("source")),
            amount_cents=json["amount"],
            fee_cents=json["fee"],
            currency=json["currency"],
            at=time_of(json["created"]),
            balance=json.get("balance_type") or PAYMENTS_BALANCE,
        )


@dataclass(frozen=True)
class Intent:
    """A payment, with the charge that paid it once there is one."""

    id: str
    status: str
    amount_cents: int
    currency: str
    metadata: Mapping[str, str]
    charge_id: str
    booking: Booking | None
    error_code: str
    error_message: str

    @classmethod
    def read(cls, json: Json) -> Intent:
        charge = json.get("latest_charge")
        booking = charge.get("balance_transaction") if isinstance(charge, Mapping) else None
        error = json.get("last_payment_error") or {}
        return cls(
            id=json["id"],
            status=json["status"],
            amount_cents=json["amount"],
            currency=json["currency"],
            metadata=dict(json.get("metadata") or {}),
            charge_id=id_of(charge),
            booking=Booking.read(booking) if isinstance(booking, Mapping) else None,
            error_code=error.get("decline_code") or error.get("code") or "",
            error_message=error.get("message") or "",
        )


@dataclass(frozen=True)
class Session:
    """A page at Stripe on which a customer pays, or saves a card."""

    id: str
    mode: str
    status: str
    url: str
    customer_id: str
    intent_id: str
    tax_cents: int
    metadata: Mapping[str, str]

    @classmethod
    def read(cls, json: Json) -> Session:
        return cls(
            id=json["id"],
            mode=json["mode"],
            status=json.get("status") or "",
            url=json.get("url") or "",
            customer_id=id_of(json.get("customer")),
            intent_id=id_of(json.get("payment_intent")),
            tax_cents=(json.get("total_details") or {}).get("amount_tax") or 0,
            metadata=dict(json.get("metadata") or {}),
        )


@dataclass(frozen=True)
class Card:
    """What a person needs to know their card by."""

    id: str
    brand: str
    last4: str
    exp_month: int
    exp_year: int

    @classmethod
    def read(cls, json: Json) -> Card:
        card = json["card"]
        return cls(json["id"], card["brand"], card["last4"], card["exp_month"], card["exp_year"])


@dataclass(frozen=True)
class Refund:
    id: str
    status: str
    amount_cents: int
    charge_id: str
    metadata: Mapping[str, str]
    booking: Booking | None
    failure_booking: Booking | None
    failure_reason: str

    @classmethod
    def read(cls, json: Json) -> Refund:
        booked, failed = json.get("balance_transaction"), json.get("failure_balance_transaction")
        return cls(
            id=json["id"],
            status=json.get("status") or "",
            amount_cents=json["amount"],
            charge_id=id_of(json.get("charge")),
            metadata=dict(json.get("metadata") or {}),
            booking=Booking.read(booked) if isinstance(booked, Mapping) else None,
            failure_booking=Booking.read(failed) if isinstance(failed, Mapping) else None,
            failure_reason=json.get("failure_reason") or "",
        )


@dataclass(frozen=True)
class Dispute:
    id: str
    status: str
    amount_cents: int
    reason: str
    charge_id: str
    intent_id: str
    bookings: tuple[Booking, ...]
    due_at: datetime | None

    @classmethod
    def read(cls, json: Json) -> Dispute:
        due_by = (json.get("evidence_details") or {}).get("due_by")
        return cls(
            id=json["id"],
            status=json["status"],
            amount_cents=json["amount"],
            reason=json.get("reason") or "",
            charge_id=id_of(json.get("charge")),
            intent_id=id_of(json.get("payment_intent")),
            bookings=tuple(Booking.read(one) for one in json.get("balance_transactions") or ()),
            due_at=time_of(due_by) if due_by else None,
        )


@dataclass(frozen=True)
class EarlyWarning:
    """The card's bank says that a payment may be fraud; before a dispute, or without one. Nothing moved."""

    id: str
    charge_id: str
    intent_id: str
    fraud_type: str
    is_actionable: bool  # neither disputed nor refunded whole

    @classmethod
    def read(cls, json: Json) -> EarlyWarning:
        return cls(
            id=json["id"],
            charge_id=id_of(json.get("charge")),
            intent_id=id_of(json.get("payment_intent")),
            fraud_type=json.get("fraud_type") or "",
            is_actionable=bool(json.get("actionable")),
        )


@dataclass(frozen=True)
class Connected:
    """A provider's account at Stripe."""

    id: str
    metadata: Mapping[str, str]
    is_submitted: bool
    is_payable: bool
    requirements: tuple[str, ...]
    disabled_reason: str

    @classmethod
    def read(cls, json: Json) -> Connected:
        wanted = json.get("requirements") or {}
        takes_transfers = (json.get("capabilities") or {}).get("transfers") == "active"
        return cls(
            id=json["id"],
            metadata=dict(json.get("metadata") or {}),
            is_submitted=bool(json.get("details_submitted")),
            is_payable=takes_transfers and bool(json.get("payouts_enabled")),
            requirements=tuple(wanted.get("currently_due") or ()),
            disabled_reason=wanted.get("disabled_reason") or "",
        )


@dataclass(frozen=True)
class Moved:
    """Money that went to a provider's account: a transfer."""

    id: str
    amount_cents: int
    reversed_cents: int
    destination: str
    metadata: Mapping[str, str]

    @classmethod
    def read(cls, json: Json) -> Moved:
        return cls(
            id=json["id"],
            amount_cents=json["amount"],
            reversed_cents=json["amount_reversed"],
            destination=id_of(json.get("destination")),
            metadata=dict(json.get("metadata") or {}),
        )


@dataclass(frozen=True)
class Reversal:
    """Money that came back from a provider's account."""

    id: str
    amount_cents: int
    metadata: Mapping[str, str]
    booking_id: str

    @classmethod
    def read(cls, json: Json) -> Reversal:
        return cls(
            id=json["id"],
            amount_cents=json["amount"],
            metadata=dict(json.get("metadata") or {}),
            booking_id=id_of(json.get("balance_transaction")),
        )


@dataclass(frozen=True)
class BankPayout:
    """Money on its way from a provider's account at Stripe to the provider's bank."""

    id: str
    status: str
    metadata: Mapping[str, str]
    failure: str

    @classmethod
    def read(cls, json: Json) -> BankPayout:
        return cls(
            id=json["id"],
            status=json["status"],
            metadata=dict(json.get("metadata") or {}),
            failure=json.get("failure_message") or json.get("failure_code") or "",
        )


@dataclass(frozen=True)
class EventRecord:
    """One event: what it is about is only an id, since whoever handles it asks for the present state."""

    id: str
    type: str
    at: datetime
    account: str
    payload: Json

    @classmethod
    def read(cls, json: Json) -> EventRecord:
        """Names only: an object in full has its payer's name, address and card, which are not ours to keep."""
        named = json["data"]["object"]
        kept = {name: id_of(named.get(name)) for name in NAMED_IN_EVENTS if named.get(name)}
        return cls(
            id=_text(json["id"]),
            type=_text(json["type"]),
            at=time_of(json["created"]),
            account=_text(json.get("account") or ""),
            payload={"data": {"object": {name: _text(value) for name, value in kept.items()}}},
        )


def id_of(value: Any) -> str:
    """The id of something that Stripe gives as an id or, where it was asked to expand it, whole."""
    if isinstance(value, Mapping):
        return str(value.get("id") or "")
    return str(value or "")


def _text(value: Any) -> str:
    """Raises ValueError for what no name at Stripe is, and no column takes."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > NAME_CHARACTERS_MAX:
        raise ValueError(f"{value!r:.60} is not a name at Stripe")
    return value


def time_of(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
