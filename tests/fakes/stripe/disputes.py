"""Disputes: the bank takes a payment back with a fee; evidence is sent, and the bank decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fakes.stripe.customers import merge_metadata
from tests.fakes.stripe.errors import invalid
from tests.fakes.stripe.forms import as_bool
from tests.fakes.stripe.routes import Call, route
from tests.fakes.stripe.shapes import Object, dispute, early_fraud_warning

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe

ANSWER_SECONDS: Final = 9 * 24 * 3600
FEE_CENTS: Final = 1500
_OPEN: Final = ("needs_response", "under_review", "warning_needs_response", "warning_under_review")
# What Stripe's test mode takes for the bank's decision when it is sent as uncategorized_text.
_DECIDING: Final = {"winning_evidence": True, "losing_evidence": False}
_WAITING: Final = ("needs_response", "warning_needs_response")


@route("GET", "/v1/disputes", "DisputeListParams")
def list_disputes(stripe: FakeStripe, call: Call) -> Object:
    by = ("charge", "payment_intent")
    return stripe.store.page(call.account, "dispute", call.params, call.path, by=by)


@route("GET", "/v1/disputes/{id}", "DisputeRetrieveParams")
def retrieve_dispute(stripe: FakeStripe, call: Call, id: str) -> Object:
    return stripe.store.get(call.account, "dispute", id)


@route("POST", "/v1/disputes/{id}", "DisputeUpdateParams", makes="evidence")
def update_dispute(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "dispute", id)
    evidence = call.params.get("evidence") or {}
    details = found["evidence_details"]
    if evidence and (found["status"] not in _WAITING or details["past_due"]):
        raise invalid("This dispute is already closed or its evidence was submitted.", code="dispute_not_open")
    unknown = set(evidence) - set(found["evidence"])
    if unknown:
        name = sorted(unknown)[0]
        raise invalid(f"Received unknown parameter: evidence[{name}]", code="parameter_unknown", param=name)
    found["evidence"] |= evidence
    details["has_evidence"] = any(value for name, value in found["evidence"].items() if name != "enhanced_evidence")
    merge_metadata(found, call.params)
    if evidence and as_bool(call.params, "submit", True):
        details["submission_count"] += 1
        details["submission_method"] = "manual"
        found["status"] = found["status"].replace("needs_response", "under_review")
        if found["evidence"]["uncategorized_text"] in _DECIDING:
            won = _DECIDING[found["evidence"]["uncategorized_text"]]
            stripe.later(lambda: close(stripe, id, won=won))
    stripe.emit("charge.dispute.updated", found, call)
    return found


@route("POST", "/v1/disputes/{id}/close", "DisputeCloseParams", makes="acceptance")
def accept_dispute(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "dispute", id)
    if found["status"] not in _OPEN:
        raise invalid("This dispute is already closed.", code="dispute_already_closed")
    return close(stripe, id, won=False, call=call)


@route("GET", "/v1/radar/early_fraud_warnings/{id}", "radar.EarlyFraudWarningRetrieveParams")
def retrieve_warning(stripe: FakeStripe, call: Call, id: str) -> Object:
    return stripe.store.get(call.account, "radar.early_fraud_warning", id)


def warn_for(stripe: FakeStripe, charge_id: str, fraud_type: str) -> Object:
    """The card's bank says that this charge may be fraud; no money moves."""
    account, paid = stripe.store.find(charge_id)
    fields = early_fraud_warning() | {
        "charge": charge_id,
        "fraud_type": fraud_type,
        "payment_intent": paid["payment_intent"],
    }
    made = stripe.store.add(account, fields, prefix="issfr")
    stripe.emit("radar.early_fraud_warning.created", made)
    return made


def refresh_warning(stripe: FakeStripe, warning_id: str) -> Object:
    """Whether anything can still be done about it."""
    _, found = stripe.store.find(warning_id)
    _, paid = stripe.store.find(found["charge"])
    found["actionable"] = not (paid["disputed"] or paid["refunded"])
    stripe.emit("radar.early_fraud_warning.updated", found)
    return found


def open_for(stripe: FakeStripe, charge_id: str, *, cents: int | None, reason: str, is_inquiry: bool) -> Object:
    """The customer complained to the bank; unless it only inquires, the money and a fee are gone at once."""
    account, paid = stripe.store.find(charge_id)
    if not paid["paid"] or paid["disputed"]:
        raise ValueError(f"charge {charge_id} cannot be disputed (again)")
    card = paid["payment_method_details"]["card"]
    now = stripe.clock.now()
    fields = dispute() | {
        "amount": paid["amount"] - paid["amount_refunded"] if cents is None else cents,
        "charge": charge_id,
        "currency": paid["currency"],
        "evidence_details": {
            "due_by": now + ANSWER_SECONDS,
            "enhanced_eligibility": {},
            "has_evidence": False,
            "past_due": False,
            "submission_count": 0,
            "submission_method": "not_submitted",
        },
        "is_charge_refundable": is_inquiry,
        "payment_intent": paid["payment_intent"],
        "payment_method_details": {
            "card": {
                "brand": card["brand"],
                "case_type": "inquiry" if is_inquiry else "chargeback",
                "network": card["network"],
                "network_reason_code": "10.4",
            },
            "type": "card",
        },
        "reason": reason,
        "status": "warning_needs_response" if is_inquiry else "needs_response",
    }
    made = stripe.store.add(account, fields, prefix="du")
    paid["disputed"] = True
    if not is_inquiry:
        _book(stripe, account, made, -made["amount"], stripe.dispute_fee_cents, "dispute")
    stripe.emit("charge.dispute.created", made)
    if not is_inquiry:
        stripe.emit("charge.dispute.funds_withdrawn", made)
    return made


def close(stripe: FakeStripe, dispute_id: str, *, won: bool, call: Call | None = None) -> Object:
    """The bank has decided; a dispute that is won gives the money back, the fee only where the fake is set so."""
    account, found = stripe.store.find(dispute_id)
    if found["status"] not in _OPEN:
        raise ValueError(f"dispute {dispute_id} is {found['status']}")
    is_inquiry = found["status"].startswith("warning")
    found["status"] = "warning_closed" if is_inquiry else "won" if won else "lost"
    if won and not is_inquiry:
        fee = -stripe.dispute_fee_cents if stripe.is_dispute_fee_returned else 0
        _book(stripe, account, found, found["amount"], fee, "dispute_reversal")
        stripe.emit("charge.dispute.funds_reinstated", found, call)
    stripe.emit("charge.dispute.closed", found, call)
    return found


def set_status(stripe: FakeStripe, dispute_id: str, status: str) -> Object:
    """What only Stripe decides: prevented, appeals, or what it thinks of next year. No money moves."""
    _, found = stripe.store.find(dispute_id)
    found["status"] = status
    stripe.emit("charge.dispute.closed" if status == "prevented" else "charge.dispute.updated", found)
    return found


def lose_unanswered(stripe: FakeStripe) -> None:
    """A dispute that nobody answered in time is lost."""
    for account in stripe.store.accounts():
        for found in stripe.store.all("dispute", account):
            if found["status"] in _WAITING and found["evidence_details"]["due_by"] <= stripe.clock.now():
                found["evidence_details"]["past_due"] = True
                close(stripe, found["id"], won=False)


def _book(stripe: FakeStripe, account: str, found: Object, cents: int, fee: int, category: str) -> None:
    booked = stripe.books.book(
        account, "adjustment", cents, found["currency"], source=found["id"], fee=fee,
        description=f"Chargeback {'withdrawal' if cents < 0 else 'reversal'} for {found['charge']}",
    )  # fmt: skip
    booked["reporting_category"] = category
    for detail in booked["fee_details"]:
        detail["description"] = "Dispute fee"
    found["balance_transactions"].append(dict(booked))
