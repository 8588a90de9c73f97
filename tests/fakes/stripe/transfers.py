"""Transfers from the platform's balance to connected accounts, and their reversals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.stripe.customers import merge_metadata
from tests.fakes.stripe.errors import absent, invalid, missing
from tests.fakes.stripe.forms import as_int
from tests.fakes.stripe.routes import Call, route
from tests.fakes.stripe.shapes import Object, charge, listing, refund, transfer, transfer_reversal
from tests.fakes.stripe.store import PLATFORM

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe


@route("POST", "/v1/transfers", "TransferCreateParams", makes="transfer")
def create_transfer(stripe: FakeStripe, call: Call) -> Object:
    params = call.params
    for name in ("currency", "destination"):
        if name not in params:
            raise missing(name)
    cents, currency = as_int(params, "amount", minimum=1), params["currency"].lower()
    destination = _destination(stripe, params["destination"])
    source, due = _source(stripe, params, cents)
    if source is None:
        stripe.books.require(PLATFORM, currency, cents)
    fields = transfer() | {
        "amount": cents,
        "currency": currency,
        "description": params.get("description"),
        "destination": destination,
        "id": stripe.store.new_id("tr"),
        "metadata": dict(params.get("metadata") or {}),
        "source_transaction": source["id"] if source else None,
        "transfer_group": params.get("transfer_group") or _group_of(source),
    }
    made = stripe.store.add(PLATFORM, fields)
    made["reversals"] = listing(f"/v1/transfers/{made['id']}/reversals") | {"total_count": 0}
    booked = stripe.books.book(PLATFORM, "transfer", -cents, currency, source=made["id"], available_on=due)
    payment = stripe.store.add(destination, _payment(made), prefix="py")
    arrived = stripe.books.book(destination, "payment", cents, currency, source=payment["id"], available_on=due)
    payment["balance_transaction"] = arrived["id"]
    made |= {"balance_transaction": booked["id"], "destination_payment": payment["id"]}
    stripe.emit("transfer.created", made, call)
    stripe.emit("payment.created", payment, call)
    return made


@route("GET", "/v1/transfers", "TransferListParams")
def list_transfers(stripe: FakeStripe, call: Call) -> Object:
    by = ("destination", "transfer_group")
    return stripe.store.page(call.account, "transfer", call.params, call.path, by=by)


@route("GET", "/v1/transfers/{id}", "TransferRetrieveParams")
def retrieve_transfer(stripe: FakeStripe, call: Call, id: str) -> Object:
    return stripe.store.get(call.account, "transfer", id)


@route("POST", "/v1/transfers/{id}", "TransferUpdateParams")
def update_transfer(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "transfer", id)
    found["description"] = call.params.get("description", found["description"]) or None
    merge_metadata(found, call.params)
    stripe.emit("transfer.updated", found, call)
    return found


@route("POST", "/v1/transfers/{id}/reversals", "TransferCreateReversalParams", makes="transfer_reversal")
def create_reversal(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "transfer", id, param="transfer")
    left = found["amount"] - found["amount_reversed"]
    if left == 0:
        raise invalid(f"Transfer {id} is already fully reversed.", code="transfer_already_reversed")
    cents = as_int(call.params, "amount", left, minimum=1)
    if cents > left:
        message = f"Transfer amount (${cents / 100:.2f}) is greater than unreversed amount (${left / 100:.2f})."
        raise invalid(message, param="amount")
    currency, destination = found["currency"], found["destination"]
    out = stripe.store.get(PLATFORM, "balance_transaction", found["balance_transaction"])
    available, pending = stripe.books.sums(destination).get(currency, (0, 0))
    if available + (pending if out["status"] == "pending" else 0) < cents:
        message = "The connected account does not have sufficient available balance to cover this transfer reversal."
        raise invalid(message, code="balance_insufficient")
    fields = transfer_reversal() | {"amount": cents, "currency": currency, "transfer": id}
    made = stripe.store.add(PLATFORM, fields, prefix="trr", has_livemode=False)
    merge_metadata(made, call.params)
    due = max(out["available_on"], stripe.clock.now())
    booked = stripe.books.book(PLATFORM, "transfer_refund", cents, currency, source=made["id"], available_on=due)
    back = refund() | {"amount": cents, "charge": found["destination_payment"], "currency": currency}
    returned = stripe.store.add(destination, back, prefix="pyr", has_livemode=False)
    left_there = stripe.books.book(
        destination, "payment_refund", -cents, currency, source=returned["id"], available_on=due
    )
    returned |= {"balance_transaction": left_there["id"], "transfer_reversal": made["id"]}
    made |= {"balance_transaction": booked["id"], "destination_payment_refund": returned["id"]}
    found["amount_reversed"] += cents
    found["reversed"] = found["amount_reversed"] == found["amount"]
    found["reversals"]["data"].insert(0, dict(made))
    found["reversals"]["total_count"] += 1
    stripe.emit("transfer.reversed", found, call)
    return made


@route("GET", "/v1/transfers/{id}/reversals", "TransferListReversalsParams")
def list_reversals(stripe: FakeStripe, call: Call, id: str) -> Object:
    stripe.store.get(call.account, "transfer", id, param="transfer")
    rows = [row for row in reversed(stripe.store.all("transfer_reversal")) if row["transfer"] == id]
    return stripe.store.page_of(rows, call.params, call.path)


@route("GET", "/v1/transfers/{transfer}/reversals/{id}", "TransferRetrieveReversalParams")
def retrieve_reversal(stripe: FakeStripe, call: Call, transfer: str, id: str) -> Object:
    found = stripe.store.get(call.account, "transfer_reversal", id)
    if found["transfer"] != transfer:
        raise absent("transfer reversal", id)
    return found


def _destination(stripe: FakeStripe, account_id: str) -> str:
    if account_id == PLATFORM or not stripe.store.has_account(account_id):
        raise invalid(f"No such destination: '{account_id}'", code="resource_missing", param="destination")
    found = stripe.store.get(PLATFORM, "account", account_id, param="destination")
    if found["capabilities"].get("transfers") != "active":
        message = (
            "Your destination account needs to have at least one of the following capabilities enabled: transfers, "
            "crypto_transfers, legacy_payments"
        )
        raise invalid(message, code="insufficient_capabilities_for_transfer")
    return account_id


def _source(stripe: FakeStripe, params: Object, cents: int) -> tuple[Object | None, int]:
    """The charge that the transfer is bound to, and when its money is there; without one, now."""
    if not params.get("source_transaction"):
        return None, stripe.clock.now()
    found = stripe.store.get(PLATFORM, "charge", params["source_transaction"], param="source_transaction")
    bound = [row for row in stripe.store.all("transfer") if row["source_transaction"] == found["id"]]
    used = sum(row["amount"] - row["amount_reversed"] for row in bound)
    if not found["paid"] or used + cents > found["amount"] - found["amount_refunded"]:
        message = f"Cannot create transfers totalling more than the source charge's amount of {found['amount']}."
        raise invalid(message, param="amount")
    if found["balance_transaction"] is None:
        raise invalid("The source charge is not in the balance yet.", param="source_transaction")
    booked = stripe.store.get(PLATFORM, "balance_transaction", found["balance_transaction"])
    return found, max(booked["available_on"], stripe.clock.now())


def _group_of(source: Object | None) -> str | None:
    if source is None:
        return None
    return source["transfer_group"] or f"group_{source['payment_intent'] or source['id']}"


def _payment(made: Object) -> Object:
    """How a transfer looks to whom it went."""
    cents = made["amount"]
    paid = {"amount": cents, "amount_captured": cents, "captured": True, "paid": True, "status": "succeeded"}
    return charge() | paid | {"currency": made["currency"], "source_transfer": made["id"]}
