"""Charges: one for each attempt to take a payment from a card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.stripe import cards
from tests.fakes.stripe.routes import Call, route
from tests.fakes.stripe.shapes import Object, charge, charge_card, listing

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe


@route("GET", "/v1/charges", "ChargeListParams")
def list_charges(stripe: FakeStripe, call: Call) -> Object:
    by = ("customer", "payment_intent", "transfer_group")
    return stripe.store.page(call.account, "charge", call.params, call.path, by=by)


@route("GET", "/v1/charges/search", "ChargeSearchParams")
def search_charges(stripe: FakeStripe, call: Call) -> Object:
    return stripe.search(call, "charge")


@route("GET", "/v1/charges/{id}", "ChargeRetrieveParams")
def retrieve_charge(stripe: FakeStripe, call: Call, id: str) -> Object:
    return stripe.store.get(call.account, "charge", id)


def make_charge(stripe: FakeStripe, account: str, intent: Object, method: Object) -> Object:
    """An attempt on this card, not decided yet."""
    fields = charge() | {
        "amount": intent["amount"],
        "calculated_statement_descriptor": "SOUK",
        "currency": intent["currency"],
        "customer": intent["customer"],
        "description": intent["description"],
        "metadata": dict(intent["metadata"]),
        "outcome": {
            "advice_code": None,
            "network_advice_code": None,
            "network_decline_code": None,
            "network_status": None,
            "reason": None,
            "risk_level": "normal",
            "seller_message": None,
            "type": "",
        },
        "payment_intent": intent["id"],
        "payment_method": method["id"],
        "payment_method_details": {"type": "card", "card": charge_card(method, intent["amount"])},
        "receipt_email": intent["receipt_email"],
        "transfer_group": intent["transfer_group"],
    }
    return stripe.store.add(account, fields, prefix="ch")


def book_charge(stripe: FakeStripe, account: str, found: Object, *, is_late: bool = False) -> None:
    """The money and its fee are in the balance, to become available later."""
    method = stripe.store.get(account, "payment_method", found["payment_method"])
    wait = 0 if cards.behaviour_of(method).is_available_at_once else stripe.availability_seconds
    cents, currency = found["amount"], found["currency"]
    booked = stripe.books.book(
        account,
        "charge",
        cents,
        currency,
        source=found["id"],
        fee=stripe.books.card_fee(cents),
        available_on=found["created"] + wait,
        description=found["description"],
    )
    found["balance_transaction"] = booked["id"]
    if is_late:
        stripe.emit("charge.updated", found)


def refunds_of(stripe: FakeStripe, account: str, found: Object) -> Object:
    rows = [row for row in reversed(stripe.store.all("refund", account)) if row["charge"] == found["id"]]
    return listing(f"/v1/charges/{found['id']}/refunds", rows)
