"""Payment intents, and the charges they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fakes.stripe import cards, charges
from tests.fakes.stripe.customers import attach, merge_metadata
from tests.fakes.stripe.errors import WireError, declined, invalid, missing, unusable
from tests.fakes.stripe.forms import as_bool, as_int
from tests.fakes.stripe.routes import Call, route
from tests.fakes.stripe.shapes import Object, payment_intent

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe

CENTS_MIN: Final = 50
CENTS_MAX: Final = 99_999_999

_COPIED: Final = (
    "customer",
    "description",
    "receipt_email",
    "setup_future_usage",
    "statement_descriptor",
    "statement_descriptor_suffix",
    "transfer_group",
    "on_behalf_of",
)
_CANCELABLE: Final = ("requires_payment_method", "requires_confirmation", "requires_action")


@route("POST", "/v1/payment_intents", "PaymentIntentCreateParams", makes="payment_intent")
def create_payment_intent(stripe: FakeStripe, call: Call) -> Object:
    params = call.params
    made = open_intent(stripe, call.account, params, call)
    if as_bool(params, "confirm"):
        confirm_intent(stripe, call.account, made, params, call)
    elif as_bool(params, "off_session"):
        message = "You cannot set `off_session` to `true` when creating a PaymentIntent without confirming it."
        raise unusable(message, code="parameter_invalid", param="off_session")
    return made


@route("GET", "/v1/payment_intents", "PaymentIntentListParams")
def list_payment_intents(stripe: FakeStripe, call: Call) -> Object:
    return stripe.store.page(call.account, "payment_intent", call.params, call.path, by=("customer",))


@route("GET", "/v1/payment_intents/search", "PaymentIntentSearchParams")
def search_payment_intents(stripe: FakeStripe, call: Call) -> Object:
    return stripe.search(call, "payment_intent")


@route("GET", "/v1/payment_intents/{id}", "PaymentIntentRetrieveParams")
def retrieve_payment_intent(stripe: FakeStripe, call: Call, id: str) -> Object:
    return stripe.store.get(call.account, "payment_intent", id, param="intent")


@route("POST", "/v1/payment_intents/{id}", "PaymentIntentUpdateParams")
def update_payment_intent(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "payment_intent", id, param="intent")
    if "amount" in call.params:
        if found["status"] not in _CANCELABLE:
            raise _unexpected(found, "update")
        found["amount"] = _amount(call.params)
    for name in _COPIED:
        if name in call.params:
            found[name] = call.params[name] or None
    merge_metadata(found, call.params)
    return found


@route("POST", "/v1/payment_intents/{id}/confirm", "PaymentIntentConfirmParams", makes="confirmation")
def confirm_payment_intent(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "payment_intent", id, param="intent")
    confirm_intent(stripe, call.account, found, call.params, call)
    return found


@route("POST", "/v1/payment_intents/{id}/cancel", "PaymentIntentCancelParams")
def cancel_payment_intent(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(call.account, "payment_intent", id, param="intent")
    if found["status"] not in _CANCELABLE:
        raise _unexpected(found, "cancel")
    now = stripe.clock.now()
    reason = call.params.get("cancellation_reason")
    found |= {"status": "canceled", "canceled_at": now, "cancellation_reason": reason, "next_action": None}
    stripe.emit("payment_intent.canceled", found, call)
    return found


def open_intent(stripe: FakeStripe, account: str, params: Object, call: Call | None = None) -> Object:
    """A new payment intent that has not been confirmed."""
    if "currency" not in params:
        raise missing("currency")
    capture_method = params.get("capture_method", "automatic_async")
    if capture_method not in {"automatic", "automatic_async"}:
        raise invalid("The fake does not authorise without capturing.", param="capture_method")
    if params.get("customer"):
        stripe.store.get(account, "customer", params["customer"], param="customer")
    fields = payment_intent() | {"amount": _amount(params), "currency": params["currency"].lower()}
    fields |= {name: params.get(name) or None for name in _COPIED}
    fields |= {"capture_method": capture_method}
    fields |= {"id": stripe.store.new_id("pi"), "metadata": dict(params.get("metadata") or {})}
    fields["client_secret"] = f"{fields['id']}_secret_{stripe.store.new_id('s')[2:]}"
    if "automatic_payment_methods" in params:
        redirects = params["automatic_payment_methods"].get("allow_redirects", "always")
        fields["automatic_payment_methods"] = {"allow_redirects": redirects, "enabled": True}
    if "allowed_payment_method_types" in params:
        fields["payment_method_types"] = params["allowed_payment_method_types"]
    if params.get("payment_method"):
        method = _usable_method(stripe, account, params["payment_method"], params.get("customer"))
        fields |= {"payment_method": method["id"], "status": "requires_confirmation"}
    made = stripe.store.add(account, fields)
    stripe.emit("payment_intent.created", made, call)
    return made


def confirm_intent(stripe: FakeStripe, account: str, intent: Object, params: Object, call: Call | None = None) -> None:
    """Charge the payment method: succeeded, requires_action, or a card error after which another may be tried."""
    if intent["status"] not in {"requires_payment_method", "requires_confirmation"}:
        raise _unexpected(intent, "confirm")
    method_id = params.get("payment_method") or intent["payment_method"]
    if method_id is None:
        message = (
            "You cannot confirm this PaymentIntent because it's missing a payment method. You can either update the "
            "PaymentIntent with a payment method and then confirm it again, or confirm it again directly with a "
            "payment method or ConfirmationToken."
        )
        raise invalid(message, code="payment_intent_unexpected_state", payment_intent=dict(intent))
    method = _usable_method(stripe, account, method_id, intent["customer"])
    behaviour = cards.behaviour_of(method)
    intent |= {"payment_method": method["id"], "last_payment_error": None}
    if behaviour.code:
        _decline(stripe, account, intent, method, call)
    is_off_session = params.get("off_session", "false") not in {"false", ""}
    is_saved = method["customer"] is not None and behaviour.needs_authentication == "unless_saved"
    if behaviour.needs_authentication and not is_saved:
        if is_off_session or as_bool(params, "error_on_requires_action"):
            _fail_authentication(stripe, account, intent, method, call)
        intent |= {
            "status": "requires_action",
            "next_action": {
                "type": "use_stripe_sdk",
                "use_stripe_sdk": {"type": "three_d_secure_redirect", "stripe_js": f"{stripe.url}/3ds/{intent['id']}"},
            },
        }
        stripe.emit("payment_intent.requires_action", intent, call)
        return
    succeed(stripe, account, intent, call)


def succeed(stripe: FakeStripe, account: str, intent: Object, call: Call | None = None) -> Object:
    """The card was charged; returns the charge."""
    method = stripe.store.get(account, "payment_method", intent["payment_method"])
    behaviour = cards.behaviour_of(method)
    if intent["customer"] and intent["setup_future_usage"]:
        attach(stripe, account, method["id"], intent["customer"], call)
    made = charges.make_charge(stripe, account, intent, method)
    cents = intent["amount"]
    made |= {"amount_captured": cents, "captured": True, "paid": True, "status": "succeeded"}
    made["outcome"] |= {"network_status": "approved_by_network", "type": "authorized"}
    made["outcome"]["seller_message"] = "Payment complete."
    made["receipt_url"] = f"https://pay.stripe.com/receipts/payment/{made['id']}"
    if intent["capture_method"] == "automatic":
        charges.book_charge(stripe, account, made)
    else:  # the default of this version answers before the money is booked, and reports it later
        stripe.later(lambda: charges.book_charge(stripe, account, made, is_late=True))
    intent |= {
        "amount_received": cents,
        "last_payment_error": None,
        "latest_charge": made["id"],
        "next_action": None,
        "status": "succeeded",
    }
    stripe.emit("payment_intent.succeeded", intent, call)
    stripe.emit("charge.succeeded", made, call)
    if behaviour.dispute_reason:
        stripe.open_dispute(made["id"], reason=behaviour.dispute_reason)
    return made


def _decline(stripe: FakeStripe, account: str, intent: Object, method: Object, call: Call | None) -> None:
    behaviour = cards.behaviour_of(method)
    made = charges.make_charge(stripe, account, intent, method)
    made |= {"failure_code": behaviour.code, "failure_message": behaviour.message, "status": "failed"}
    reason = behaviour.decline_code or behaviour.code
    made["outcome"] |= {"network_status": "declined_by_network", "reason": reason, "type": "issuer_declined"}
    made["outcome"]["seller_message"] = "The bank did not return any further details with this decline."
    error = declined(behaviour.code, behaviour.decline_code, behaviour.message, charge=made["id"])
    intent["latest_charge"] = made["id"]
    stripe.emit("charge.failed", made, call)
    _raise_failure(stripe, intent, method, error, call)


def _fail_authentication(stripe: FakeStripe, account: str, intent: Object, method: Object, call: Call | None) -> None:
    message = "Your card was declined. This transaction requires authentication."
    made = charges.make_charge(stripe, account, intent, method)
    made |= {"failure_code": "authentication_required", "failure_message": message, "status": "failed"}
    made["outcome"] |= {"network_status": "declined_by_network", "type": "issuer_declined"}
    made["outcome"]["reason"] = "authentication_required"
    intent["latest_charge"] = made["id"]
    error = declined("authentication_required", "authentication_required", message, charge=made["id"])
    stripe.emit("charge.failed", made, call)
    _raise_failure(stripe, intent, method, error, call)


def _raise_failure(stripe: FakeStripe, intent: Object, method: Object, error: WireError, call: Call | None) -> None:
    """A card that fails leaves the intent waiting for another; the error carries both."""
    shown = stripe.store.rendered("", method)
    last = {**error.error, "payment_method": shown}
    intent |= {"last_payment_error": last, "payment_method": None, "status": "requires_payment_method"}
    stripe.emit("payment_intent.payment_failed", intent, call)
    error.error |= {"payment_intent": stripe.store.rendered("", intent), "payment_method": shown}
    raise error


def _usable_method(stripe: FakeStripe, account: str, method_id: str, customer_id: str | None) -> Object:
    method = cards.realise(stripe, account, method_id)
    if method["customer"] and method["customer"] != customer_id:
        message = "The provided PaymentMethod is attached to another Customer; name that customer in the PaymentIntent."
        raise invalid(message, param="payment_method")
    if method["id"] in stripe.gone_methods:
        message = (
            "The provided PaymentMethod was previously used with a PaymentIntent without Customer attachment, shared "
            "with a connected account without Customer attachment, or was detached from a Customer. It may not be used "
            "again."
        )
        raise invalid(message, param="payment_method")
    return method


def _unexpected(intent: Object, verb: str) -> WireError:
    message = f"You cannot {verb} this PaymentIntent because it has a status of {intent['status']}."
    return invalid(message, code="payment_intent_unexpected_state", payment_intent=dict(intent))


def _amount(params: Object) -> int:
    cents = as_int(params, "amount", minimum=1)
    if cents < CENTS_MIN:
        raise invalid("Amount must be at least $0.50 usd", code="amount_too_small", param="amount")
    if cents > CENTS_MAX:
        raise invalid("Amount must be no more than $999,999.99", code="amount_too_large", param="amount")
    return cents


def authenticate(stripe: FakeStripe, account: str, intent: Object, *, succeeds: bool) -> Object:
    """The customer has answered the bank's question, rightly or not."""
    if intent["status"] != "requires_action":
        raise ValueError(f"payment intent {intent['id']} is {intent['status']}")
    if succeeds:
        succeed(stripe, account, intent)
        return intent
    message = (
        "We are unable to authenticate your payment method. Please choose a different payment method and try again."
    )
    method = stripe.store.rendered(account, stripe.store.get(account, "payment_method", intent["payment_method"]))
    last = {"type": "invalid_request_error", "code": "payment_intent_authentication_failure", "message": message}
    intent |= {"last_payment_error": {**last, "payment_method": method}, "payment_method": None, "next_action": None}
    intent["status"] = "requires_payment_method"
    stripe.emit("payment_intent.payment_failed", intent)
    return intent
