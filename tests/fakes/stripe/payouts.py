"""Payouts from a Stripe balance to its owner's bank, by hand; a test or the clock says whether they arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fakes.stripe.customers import merge_metadata
from tests.fakes.stripe.errors import invalid, missing
from tests.fakes.stripe.forms import as_int
from tests.fakes.stripe.routes import Call, route
from tests.fakes.stripe.shapes import Object, payout
from tests.fakes.stripe.store import PLATFORM

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe

IN_TRANSIT_AFTER_SECONDS: Final = 24 * 3600
ARRIVES_AFTER_SECONDS: Final = 2 * 24 * 3600

FAILURES: Final = {
    "account_closed": "The bank account has been closed",
    "account_frozen": "The bank account has been frozen",
    "bank_account_restricted": "The bank account has restrictions on either the type or number of transfers allowed",
    "could_not_process": "The bank could not process this transfer",
    "debit_not_authorized": "Debit transactions are not approved on the bank account",
    "insufficient_funds": "The Stripe account has insufficient funds to cover the payout",
    "invalid_account_number": "The routing number seems correct, but the account number is invalid",
    "no_account": "The bank account details on file are probably incorrect: no bank account could be located",
}


@route("POST", "/v1/payouts", "PayoutCreateParams", makes="payout")
def create_payout(stripe: FakeStripe, call: Call) -> Object:
    params = call.params
    if "currency" not in params:
        raise missing("currency")
    cents, currency = as_int(params, "amount", minimum=1), params["currency"].lower()
    bank = _bank_of(stripe, call.account)
    stripe.books.require(call.account, currency, cents)
    now = stripe.clock.now()
    fields = payout() | {
        "amount": cents,
        "arrival_date": now + ARRIVES_AFTER_SECONDS,
        "currency": currency,
        "description": params.get("description", "STRIPE PAYOUT"),
        "destination": bank,
        "id": stripe.store.new_id("po"),
        "statement_descriptor": params.get("statement_descriptor"),
    }
    made = stripe.store.add(call.account, fields)
    merge_metadata(made, params)
    booked = stripe.books.book(call.account, "payout", -cents, currency, source=made["id"], description="STRIPE PAYOUT")
    made["balance_transaction"] = booked["id"]
    stripe.emit("payout.created", made, call)
    return made


@route("GET", "/v1/payouts", "PayoutListParams")
def list_payouts(stripe: FakeStripe, call: Call) -> Object:
    by = ("status", "destination")
    return stripe.store.page(call.account, "payout", call.params, call.path, by=by)


@route("GET", "/v1/payouts/{id}", "PayoutRetrieveParams")
def retrieve_payout(stripe: FakeStripe, call: Call, id: str) -> Object:
    return stripe.store.get(call.account, "payout", id, param="payout")


@route("POST", "/v1/payouts/{id}", "PayoutUpdateParams")
def update_payout(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "payout", id, param="payout")
    merge_metadata(found, call.params)
    stripe.emit("payout.updated", found, call)
    return found


@route("POST", "/v1/payouts/{id}/cancel", "PayoutCancelParams")
def cancel_payout(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "payout", id, param="payout")
    if found["status"] != "pending":
        raise invalid(f"Payouts with status {found['status']} cannot be canceled.", param="payout")
    _return(stripe, call.account, found, "payout_cancel")
    found["status"] = "canceled"
    stripe.emit("payout.canceled", found, call)
    return found


def pay(stripe: FakeStripe, payout_id: str) -> Object:
    """It has arrived, as far as Stripe knows; a bank may still send it back."""
    _, found = stripe.store.find(payout_id)
    if found["status"] not in {"pending", "in_transit"}:
        raise ValueError(f"payout {payout_id} is {found['status']}")
    found |= {"status": "paid", "trace_id": {"status": "supported", "value": f"trace{found['id'][-6:]}"}}
    stripe.emit("payout.paid", found)
    return found


def fail(stripe: FakeStripe, payout_id: str, code: str) -> Object:
    """The bank refused it, or sent it back after it had shown as paid: the balance has it again."""
    account, found = stripe.store.find(payout_id)
    if found["status"] not in {"pending", "in_transit", "paid"}:
        raise ValueError(f"payout {payout_id} is {found['status']}")
    found |= {"failure_code": code, "failure_message": FAILURES[code], "status": "failed"}
    _return(stripe, account, found, "payout_failure")
    stripe.emit("payout.failed", found)
    if account != PLATFORM:
        owner = stripe.store.get(PLATFORM, "account", account)
        owner["external_accounts"]["data"][0]["status"] = "errored"
        stripe.emit("account.external_account.updated", owner["external_accounts"]["data"][0], account=account)
    return found


def move_on(stripe: FakeStripe) -> None:
    """What time does to payouts: they leave after a day and arrive on their date."""
    now = stripe.clock.now()
    for account in stripe.store.accounts():
        for found in stripe.store.all("payout", account):
            if found["status"] == "pending" and found["created"] + IN_TRANSIT_AFTER_SECONDS <= now:
                found["status"] = "in_transit"
                stripe.emit("payout.updated", found)
            if found["status"] == "in_transit" and found["arrival_date"] <= now:
                pay(stripe, found["id"])


def _return(stripe: FakeStripe, account: str, found: Object, kind: str) -> None:
    booked = stripe.books.book(account, kind, found["amount"], found["currency"], source=found["id"])
    found["failure_balance_transaction"] = booked["id"]


def _bank_of(stripe: FakeStripe, account: str) -> str:
    if account == PLATFORM:
        return "ba_platform"
    owner = stripe.store.get(PLATFORM, "account", account)
    if not owner["payouts_enabled"]:
        raise invalid("Cannot create payouts; this account has payouts disabled.", code="payouts_not_allowed")
    if not owner["external_accounts"]["data"]:
        message = "Sorry, you don't have any external accounts in that currency."
        raise invalid(message, code="invalid_request", param="currency")
    return str(owner["external_accounts"]["data"][0]["id"])
