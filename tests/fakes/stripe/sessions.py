"""Checkout sessions: a page of Stripe's where a customer pays or saves a card; here a test pays it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fakes.stripe import cards, customers, payments
from tests.fakes.stripe.errors import WireError, invalid, missing, unusable
from tests.fakes.stripe.forms import as_bool, as_int
from tests.fakes.stripe.routes import Call, route
from tests.fakes.stripe.shapes import ADDRESS, Object, checkout_session, listing, nulls
from tests.fakes.stripe.store import PLATFORM

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe

OPEN_SECONDS_MAX: Final = 24 * 3600
OPEN_SECONDS_MIN: Final = 30 * 60

_COPIED: Final = (
    "billing_address_collection",
    "cancel_url",
    "client_reference_id",
    "customer",
    "customer_creation",
    "customer_email",
    "locale",
    "submit_type",
    "success_url",
)


@route("POST", "/v1/checkout/sessions", "checkout.SessionCreateParams", makes="checkout.session")
def create_session(stripe: FakeStripe, call: Call) -> Object:
    params = call.params
    mode = params.get("mode", "payment")
    if mode not in {"payment", "setup"}:
        raise invalid("The fake knows only the modes payment and setup.", param="mode")
    if "success_url" not in params:
        raise missing("success_url")
    if params.get("customer"):
        stripe.store.get(call.account, "customer", params["customer"], param="customer")
    now = stripe.clock.now()
    until = as_int(params, "expires_at", now + OPEN_SECONDS_MAX)
    if not now + OPEN_SECONDS_MIN <= until <= now + OPEN_SECONDS_MAX:
        message = "The `expires_at` timestamp must be between 30 minutes and 24 hours from Checkout Session creation."
        raise unusable(message, code="parameter_invalid", param="expires_at")
    fields = checkout_session() | {name: params.get(name) or None for name in _COPIED}
    fields |= {
        "expires_at": until,
        "id": "cs_test_" + stripe.store.new_id("a", 58)[2:],
        "metadata": dict(params.get("metadata") or {}),
        "mode": mode,
        "payment_method_types": params.get("allowed_payment_method_types", ["card"]),
        "ui_mode": params.get("ui_mode", "hosted_page"),
    }
    fields["url"] = f"https://checkout.stripe.com/c/pay/{fields['id']}"
    fields["automatic_tax"]["enabled"] = as_bool(params.get("automatic_tax") or {}, "enabled")
    if mode == "payment":
        _price(stripe, fields, params)
        fields["customer_creation"] = params.get("customer_creation") or (
            None if params.get("customer") else "if_required"
        )
    else:
        fields |= {"payment_status": "no_payment_required", "currency": params.get("currency")}
    made = stripe.store.add(call.account, fields)
    stripe.session_params[made["id"]] = dict(params)
    if mode == "setup":
        _open_setup(stripe, call, made)
    return made


@route("GET", "/v1/checkout/sessions", "checkout.SessionListParams")
def list_sessions(stripe: FakeStripe, call: Call) -> Object:
    by = ("customer", "payment_intent", "status")
    return stripe.store.page(call.account, "checkout.session", call.params, call.path, by=by)


@route("GET", "/v1/checkout/sessions/{id}", "checkout.SessionRetrieveParams")
def retrieve_session(stripe: FakeStripe, call: Call, id: str) -> Object:
    return stripe.store.get(call.account, "checkout.session", id, param="session")


@route("GET", "/v1/checkout/sessions/{id}/line_items", "checkout.SessionListLineItemsParams")
def list_line_items(stripe: FakeStripe, call: Call, id: str) -> Object:
    return line_items_of(stripe, call.account, stripe.store.get(call.account, "checkout.session", id, param="session"))


@route("POST", "/v1/checkout/sessions/{id}/expire", "checkout.SessionExpireParams")
def expire_session(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "checkout.session", id, param="session")
    if found["status"] != "open":
        message = (
            'Only Checkout Sessions with a status in ["open"] can be expired. This Checkout Session has a status of '
            f"{found['status']}."
        )
        raise invalid(message, param="session")
    _expire(stripe, found, call)
    return found


def expire_due(stripe: FakeStripe) -> None:
    for found in stripe.store.all("checkout.session"):
        if found["status"] == "open" and found["expires_at"] <= stripe.clock.now():
            _expire(stripe, found)


def pay(stripe: FakeStripe, session_id: str, payment_method: str) -> Object:
    """The customer fills the page in; a declined card leaves the session open."""
    found = stripe.store.get(PLATFORM, "checkout.session", session_id)
    if found["status"] != "open":
        raise ValueError(f"session {session_id} is {found['status']}")
    params = stripe.session_params[session_id]
    method = cards.realise(stripe, PLATFORM, payment_method)
    email = found["customer_email"] or _email_of(stripe, found) or "alice@example.com"
    try:
        if found["mode"] == "payment":
            _take_payment(stripe, found, params, method, email)
        else:
            _save_card(stripe, found, method, email)
    except WireError as error:
        if error.status != 402:
            raise
        return found
    details = {**nulls("business_name", "individual_name", "name", "phone"), "address": nulls(*ADDRESS), "email": email}
    found["customer_details"] = details | {"tax_exempt": "none", "tax_ids": []}
    found |= {"status": "complete", "url": None}
    stripe.emit("checkout.session.completed", found)
    return found


def line_items_of(stripe: FakeStripe, account: str, found: Object) -> Object:
    rows = []
    for index, line in enumerate(stripe.session_params[found["id"]].get("line_items") or []):
        cents = int(line["price_data"]["unit_amount"]) * int(line.get("quantity", 1))
        name = line["price_data"].get("product_data", {}).get("name", "")
        shown = {"id": f"li_{found['id'][-16:]}{index}", "object": "item", "description": name, "price": None}
        amounts = {"amount_discount": 0, "amount_subtotal": cents, "amount_tax": 0, "amount_total": cents}
        rows.append(shown | amounts | {"currency": found["currency"], "quantity": int(line.get("quantity", 1))})
    return listing(f"/v1/checkout/sessions/{found['id']}/line_items", rows)


def _price(stripe: FakeStripe, fields: Object, params: Object) -> None:
    """Sum the lines up, with the tax that Stripe would put on top where automatic tax is on."""
    lines = params.get("line_items")
    if not lines:
        raise missing("line_items")
    cents = 0
    for line in lines:
        data = line.get("price_data")
        if data is None:
            raise invalid("The fake knows only lines with price_data.", param="line_items[0][price]")
        cents += as_int(data, "unit_amount", minimum=1) * as_int(line, "quantity", 1, minimum=1)
        fields["currency"] = data["currency"].lower()
    if cents < payments.CENTS_MIN:
        message = "The Checkout Session's total amount due must add up to at least $0.50 usd"
        raise invalid(message, code="amount_too_small")
    tax = cents * stripe.tax_basis_points // 10_000 if fields["automatic_tax"]["enabled"] else 0
    if fields["automatic_tax"]["enabled"]:
        fields["automatic_tax"] |= {"liability": {"type": "self"}, "provider": "stripe", "status": "complete"}
    fields |= {"amount_subtotal": cents, "amount_total": cents + tax}
    fields["total_details"] = {"amount_discount": 0, "amount_shipping": 0, "amount_tax": tax}


def _open_setup(stripe: FakeStripe, call: Call, made: Object) -> None:
    wanted = call.params.get("setup_intent_data") or {}
    params = {
        "customer": made["customer"],
        "metadata": wanted.get("metadata"),
        "description": wanted.get("description"),
    }
    made["setup_intent"] = customers.open_setup_intent(stripe, call.account, params, call)["id"]


def _take_payment(stripe: FakeStripe, found: Object, params: Object, method: Object, email: str) -> None:
    if found["customer"] is None and found["customer_creation"] == "always":
        found["customer"] = customers.create_customer(
            stripe, Call("POST", "/v1/customers", {"email": email})
        )["id"]  # fmt: skip
    wanted = dict(params.get("payment_intent_data") or {})
    if found["payment_intent"] is None:
        wanted |= {"amount": found["amount_total"], "currency": found["currency"], "customer": found["customer"]}
        found["payment_intent"] = payments.open_intent(stripe, PLATFORM, wanted)["id"]
    intent = stripe.store.get(PLATFORM, "payment_intent", found["payment_intent"])
    payments.confirm_intent(stripe, PLATFORM, intent, {"payment_method": method["id"]})
    if intent["status"] == "requires_action":  # Checkout shows the bank's page itself
        payments.succeed(stripe, PLATFORM, intent)
    found["payment_status"] = "paid"


def _save_card(stripe: FakeStripe, found: Object, method: Object, email: str) -> None:
    intent = stripe.store.get(PLATFORM, "setup_intent", found["setup_intent"])
    customers.confirm_setup(stripe, PLATFORM, intent, method["id"])


def _email_of(stripe: FakeStripe, found: Object) -> str | None:
    if found["customer"] is None:
        return None
    return stripe.store.get(PLATFORM, "customer", found["customer"])["email"]


def _expire(stripe: FakeStripe, found: Object, call: Call | None = None) -> None:
    found |= {"status": "expired", "url": None}
    if found["setup_intent"]:
        stripe.store.get(PLATFORM, "setup_intent", found["setup_intent"])["status"] = "canceled"
    stripe.emit("checkout.session.expired", found, call)
