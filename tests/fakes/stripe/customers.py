"""Customers, their payment methods, and set-up intents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.fakes.stripe import cards
from tests.fakes.stripe.errors import declined, invalid, missing
from tests.fakes.stripe.routes import Call, route
from tests.fakes.stripe.shapes import ADDRESS, Object, customer, nulls, setup_intent

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe

_TEXTS: Final = ("description", "email", "name", "phone", "tax_exempt")


@route("POST", "/v1/customers", "CustomerCreateParams", makes="customer")
def create_customer(stripe: FakeStripe, call: Call) -> Object:
    fields = customer() | {"invoice_prefix": stripe.store.new_id("x", 12)[-8:].upper()}
    made = stripe.store.add(call.account, fields, prefix="cus")
    _fill(made, call.params)
    if "payment_method" in call.params:
        attach(stripe, call.account, call.params["payment_method"], made["id"])
    stripe.emit("customer.created", made, call)
    return made


@route("GET", "/v1/customers", "CustomerListParams")
def list_customers(stripe: FakeStripe, call: Call) -> Object:
    return stripe.store.page(call.account, "customer", call.params, call.path, by=("email",))


@route("GET", "/v1/customers/search", "CustomerSearchParams")
def search_customers(stripe: FakeStripe, call: Call) -> Object:
    return stripe.search(call, "customer")


@route("GET", "/v1/customers/{id}", "CustomerRetrieveParams")
def retrieve_customer(stripe: FakeStripe, call: Call, id: str) -> Object:
    if id in stripe.deleted:
        return {"id": id, "object": "customer", "deleted": True}
    return stripe.store.get(call.account, "customer", id)


@route("POST", "/v1/customers/{id}", "CustomerUpdateParams")
def update_customer(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "customer", id)
    _fill(found, call.params)
    stripe.emit("customer.updated", found, call)
    return found


@route("DELETE", "/v1/customers/{id}")
def delete_customer(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "customer", id)
    for method in _methods_of(stripe, call.account, id):
        method["customer"] = None
    stripe.store.remove(call.account, id)
    stripe.deleted.add(id)
    stripe.emit("customer.deleted", found, call, account=call.account)
    return {"id": id, "object": "customer", "deleted": True}


@route("GET", "/v1/customers/{id}/payment_methods", "CustomerListPaymentMethodsParams")
def list_methods_of_customer(stripe: FakeStripe, call: Call, id: str) -> Object:
    stripe.store.get(call.account, "customer", id, param="customer")
    rows = [row for row in _methods_of(stripe, call.account, id) if row["type"] == call.params.get("type", row["type"])]
    return stripe.store.page_of(rows, call.params, call.path)


@route("POST", "/v1/payment_methods", "PaymentMethodCreateParams")
def create_payment_method(stripe: FakeStripe, call: Call) -> Object:
    if call.params.get("type") != "card":
        raise invalid("The fake knows only payment methods of type card.", param="type")
    token = call.params.get("card", {}).get("token", "")
    return cards.realise(stripe, call.account, token.replace("tok_", "pm_card_"), call.params.get("metadata"))


@route("GET", "/v1/payment_methods", "PaymentMethodListParams")
def list_payment_methods(stripe: FakeStripe, call: Call) -> Object:
    if "customer" not in call.params:
        return stripe.store.page_of([], call.params, call.path)
    return list_methods_of_customer(stripe, call, call.params["customer"])


@route("GET", "/v1/payment_methods/{id}", "PaymentMethodRetrieveParams")
def retrieve_payment_method(stripe: FakeStripe, call: Call, id: str) -> Object:
    return stripe.store.get(call.account, "payment_method", id, param="payment_method")


@route("POST", "/v1/payment_methods/{id}/attach", "PaymentMethodAttachParams", makes="attachment")
def attach_payment_method(stripe: FakeStripe, call: Call, id: str) -> Object:
    if "customer" not in call.params:
        raise missing("customer")
    return attach(stripe, call.account, id, call.params["customer"], call)


@route("POST", "/v1/payment_methods/{id}/detach", "PaymentMethodDetachParams")
def detach_payment_method(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "payment_method", id, param="payment_method")
    if found["customer"] is None:
        message = "The payment method you provided is not attached to a customer so detachment is impossible."
        raise invalid(message, param="payment_method")
    owner = stripe.store.get(call.account, "customer", found["customer"])
    if owner["invoice_settings"]["default_payment_method"] == id:
        owner["invoice_settings"]["default_payment_method"] = None
    found["customer"] = None
    stripe.gone_methods.add(id)
    stripe.emit("payment_method.detached", found, call)
    return found


def attach(stripe: FakeStripe, account: str, method_id: str, customer_id: str, call: Call | None = None) -> Object:
    """The payment method, now of this customer; test names such as pm_card_visa become a new one."""
    stripe.store.get(account, "customer", customer_id, param="customer")
    method = cards.realise(stripe, account, method_id)
    behaviour = cards.behaviour_of(method)
    if behaviour.declines_at_attachment:
        raise declined(behaviour.code, behaviour.decline_code, behaviour.message)
    if method["customer"] not in {None, customer_id}:
        raise invalid(
            "The payment method you provided has already been attached to a customer.", param="payment_method"
        )
    if method["id"] in stripe.gone_methods:
        message = (
            "This PaymentMethod was previously used without being attached to a Customer or was detached from a "
            "Customer, and may not be used again."
        )
        raise invalid(message, code="payment_method_unexpected_state", param="payment_method")
    is_new = method["customer"] is None
    method["customer"] = customer_id
    if is_new:
        stripe.emit("payment_method.attached", method, call)
    return method


@route("POST", "/v1/setup_intents", "SetupIntentCreateParams", makes="setup_intent")
def create_setup_intent(stripe: FakeStripe, call: Call) -> Object:
    made = open_setup_intent(stripe, call.account, call.params, call)
    if call.params.get("confirm") == "true":
        confirm_setup(stripe, call.account, made, made["payment_method"], call)
    return made


@route("GET", "/v1/setup_intents", "SetupIntentListParams")
def list_setup_intents(stripe: FakeStripe, call: Call) -> Object:
    return stripe.store.page(call.account, "setup_intent", call.params, call.path, by=("customer", "payment_method"))


@route("GET", "/v1/setup_intents/{id}", "SetupIntentRetrieveParams")
def retrieve_setup_intent(stripe: FakeStripe, call: Call, id: str) -> Object:
    return stripe.store.get(call.account, "setup_intent", id, param="intent")


@route("POST", "/v1/setup_intents/{id}/confirm", "SetupIntentConfirmParams", makes="attachment")
def confirm_setup_intent(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "setup_intent", id, param="intent")
    confirm_setup(stripe, call.account, found, call.params.get("payment_method") or found["payment_method"], call)
    return found


@route("POST", "/v1/setup_intents/{id}/cancel", "SetupIntentCancelParams")
def cancel_setup_intent(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "setup_intent", id, param="intent")
    if found["status"] in {"succeeded", "canceled"}:
        message = f"You cannot cancel this SetupIntent because it has a status of {found['status']}."
        raise invalid(message, code="setup_intent_unexpected_state", setup_intent=found)
    found |= {"status": "canceled", "cancellation_reason": call.params.get("cancellation_reason")}
    stripe.emit("setup_intent.canceled", found, call)
    return found


def open_setup_intent(stripe: FakeStripe, account: str, params: Object, call: Call | None = None) -> Object:
    fields = setup_intent() | {
        "id": stripe.store.new_id("seti"),
        "customer": params.get("customer"),
        "description": params.get("description"),
        "metadata": dict(params.get("metadata") or {}),
        "payment_method_types": params.get("allowed_payment_method_types", ["card"]),
        "usage": params.get("usage", "off_session"),
    }
    fields["client_secret"] = f"{fields['id']}_secret_{stripe.store.new_id('s')[2:]}"
    if params.get("payment_method"):
        fields |= {
            "payment_method": cards.realise(stripe, account, params["payment_method"])["id"],
            "status": "requires_confirmation",
        }
    made = stripe.store.add(account, fields)
    stripe.emit("setup_intent.created", made, call)
    return made


def confirm_setup(
    stripe: FakeStripe, account: str, intent: Object, method_id: str | None, call: Call | None = None
) -> None:
    """Save the payment method for later, or say why not."""
    if method_id is None:
        message = "You cannot confirm this SetupIntent because it's missing a payment method."
        raise invalid(message, code="setup_intent_unexpected_state")
    if intent["status"] in {"succeeded", "canceled"}:
        message = f"You cannot confirm this SetupIntent because it has a status of {intent['status']}."
        raise invalid(message, code="setup_intent_unexpected_state")
    method = cards.realise(stripe, account, method_id)
    behaviour = cards.behaviour_of(method)
    if behaviour.declines_at_attachment:
        error = declined(behaviour.code, behaviour.decline_code, behaviour.message, payment_method=method)
        intent |= {"status": "requires_payment_method", "last_setup_error": dict(error.error)}
        stripe.emit("setup_intent.setup_failed", intent, call)
        error.error["setup_intent"] = dict(intent)
        raise error
    if intent["customer"]:
        attach(stripe, account, method["id"], intent["customer"], call)
    intent |= {"payment_method": method["id"], "status": "succeeded", "next_action": None}
    stripe.emit("setup_intent.succeeded", intent, call)


def _methods_of(stripe: FakeStripe, account: str, customer_id: str) -> list[Object]:
    return [row for row in reversed(stripe.store.all("payment_method", account)) if row["customer"] == customer_id]


def _fill(found: Object, params: Object) -> None:
    for name in _TEXTS:
        if name in params:
            found[name] = params[name] or None
    if "address" in params:
        found["address"] = nulls(*ADDRESS) | params["address"]
    if "invoice_settings" in params:
        found["invoice_settings"] |= {key: value or None for key, value in params["invoice_settings"].items()}
    merge_metadata(found, params)


def merge_metadata(found: Object, params: Object) -> None:
    """Stripe merges metadata; an empty value unsets its key."""
    given: Any = params.get("metadata")
    if given == "":
        found["metadata"] = {}
    elif given is not None:
        merged = {**found["metadata"], **given}
        found["metadata"] = {key: value for key, value in merged.items() if value != ""}
