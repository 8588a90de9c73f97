"""Refunds of charges: at once where the balance covers them, else pending until it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.stripe import cards
from tests.fakes.stripe.customers import merge_metadata
from tests.fakes.stripe.errors import invalid, unusable
from tests.fakes.stripe.forms import as_int
from tests.fakes.stripe.routes import Call, route
from tests.fakes.stripe.shapes import Object, refund
from tests.fakes.stripe.store import PLATFORM

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe


@route("POST", "/v1/refunds", "RefundCreateParams", makes="refund")
def create_refund(stripe: FakeStripe, call: Call) -> Object:
    found = _charge_of(stripe, call)
    left = found["amount"] - found["amount_refunded"]
    if any(row["charge"] == found["id"] and not row["is_charge_refundable"] for row in stripe.store.all("dispute")):
        message = f"Charge {found['id']} has been charged back; cannot issue a refund."
        raise invalid(message, code="charge_disputed", charge=found["id"])
    if left == 0:
        message = f"Charge {found['id']} has already been refunded."
        raise invalid(message, code="charge_already_refunded", charge=found["id"])
    cents = as_int(call.params, "amount", left, minimum=1)
    if cents > left:
        message = f"Refund amount (${cents / 100:.2f}) is greater than unrefunded amount on charge (${left / 100:.2f})"
        raise invalid(message, param="amount")
    fields = refund() | {
        "amount": cents,
        "charge": found["id"],
        "currency": found["currency"],
        "customer": found["customer"],
        "destination_details": {"card": {"type": "pending"}, "type": "card"},
        "metadata": dict(call.params.get("metadata") or {}),
        "payment_intent": found["payment_intent"],
        "payment_method": found["payment_method"],
        "reason": call.params.get("reason"),
        "status": "pending",
    }
    made = stripe.store.add(call.account, fields, prefix="re", has_livemode=False)
    found["amount_refunded"] += cents
    found["refunded"] = found["amount_refunded"] == found["amount"]
    settle_refund(stripe, call.account, made)
    stripe.emit("refund.created", made, call)
    stripe.emit("charge.refunded", found, call)
    return made


@route("GET", "/v1/refunds", "RefundListParams")
def list_refunds(stripe: FakeStripe, call: Call) -> Object:
    return stripe.store.page(call.account, "refund", call.params, call.path, by=("charge", "payment_intent"))


@route("GET", "/v1/refunds/{id}", "RefundRetrieveParams")
def retrieve_refund(stripe: FakeStripe, call: Call, id: str) -> Object:
    return stripe.store.get(call.account, "refund", id)


@route("POST", "/v1/refunds/{id}", "RefundUpdateParams")
def update_refund(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "refund", id)
    merge_metadata(found, call.params)
    stripe.emit("refund.updated", found, call)
    return found


def settle_refund(stripe: FakeStripe, account: str, found: Object) -> bool:
    """Pay a pending refund out of the balance, where that covers it; whether it did."""
    paid = stripe.store.get(account, "charge", found["charge"])
    if paid["balance_transaction"] is None:
        return False
    due = stripe.store.get(account, "balance_transaction", paid["balance_transaction"])["available_on"]
    available, pending = stripe.books.sums(account).get(found["currency"], (0, 0))
    # What has not become available yet may be given back too: it is the customer's own payment.
    covers = available + (pending if due > stripe.clock.now() else 0)
    if covers < found["amount"]:
        return False
    booked = stripe.books.book(
        account, "refund", -found["amount"], found["currency"], source=found["id"],
        available_on=max(due, stripe.clock.now()),
        description="REFUND FOR CHARGE",
    )  # fmt: skip
    found |= {"balance_transaction": booked["id"], "status": "succeeded"}
    found["destination_details"]["card"]["type"] = "refund"
    method = stripe.store.get(account, "payment_method", paid["payment_method"])
    if cards.behaviour_of(method).fails_refunds:
        stripe.later(lambda: fail_refund(stripe, found["id"]))
    return True


def settle_refunds(stripe: FakeStripe) -> None:
    """Those that wait, oldest first."""
    for found in stripe.store.all("refund", PLATFORM):
        if found["status"] == "pending" and settle_refund(stripe, PLATFORM, found):
            stripe.emit("refund.updated", found)


def fail_refund(stripe: FakeStripe, refund_id: str, reason: str = "lost_or_stolen_card") -> Object:
    """The bank did not take it: the money comes back to the balance."""
    account, found = stripe.store.find(refund_id)
    if found["status"] != "succeeded":
        raise ValueError(f"refund {refund_id} is {found['status']}")
    booked = stripe.books.book(account, "refund_failure", found["amount"], found["currency"], source=found["id"])
    found |= {"failure_balance_transaction": booked["id"], "failure_reason": reason, "status": "failed"}
    paid = stripe.store.get(account, "charge", found["charge"])
    paid["amount_refunded"] -= found["amount"]
    paid["refunded"] = False
    stripe.emit("refund.failed", found)
    stripe.emit("refund.updated", found)
    return found


def _charge_of(stripe: FakeStripe, call: Call) -> Object:
    params = call.params
    if "charge" in params:
        found = stripe.store.get(call.account, "charge", params["charge"], param="charge")
    elif "payment_intent" in params:
        intent = stripe.store.get(call.account, "payment_intent", params["payment_intent"], param="payment_intent")
        if intent["latest_charge"] is None:
            message = f"This PaymentIntent ({intent['id']}) does not have a successful charge to refund."
            raise invalid(message, param="payment_intent")
        found = stripe.store.get(call.account, "charge", intent["latest_charge"])
    else:
        message = "One of the following params should be provided for this request: payment_intent or charge."
        raise unusable(message, code="parameter_missing", param="charge")
    if not found["paid"]:
        raise invalid(f"Charge {found['id']} was not paid; it cannot be refunded.", param="charge")
    return found
