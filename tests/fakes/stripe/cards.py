"""Stripe's test payment methods, by the names its documentation gives them, and what a charge of each one does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.fakes.stripe.errors import absent
from tests.fakes.stripe.shapes import Object, card, payment_method

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe


@dataclass(frozen=True)
class Behaviour:
    """What happens when this card is saved or charged."""

    last4: str
    brand: str = "visa"
    code: str = ""  # a charge is declined with this
    decline_code: str = ""
    message: str = ""
    declines_at_attachment: bool = True  # where it is declined at all, already when saved
    needs_authentication: str = ""  # "always", or "unless_saved"
    is_available_at_once: bool = False
    dispute_reason: str = ""  # disputed as soon as it is charged
    fails_refunds: bool = False

    def __post_init__(self) -> None:
        if not self.code:
            object.__setattr__(self, "declines_at_attachment", False)


def _declined(last4: str, decline_code: str, message: str, *, code: str = "card_declined") -> Behaviour:
    return Behaviour(last4, code=code, decline_code=decline_code, message=message)


_GENERIC: Final = _declined("0002", "generic_decline", "Your card was declined.")
_FUNDS: Final = _declined("9995", "insufficient_funds", "Your card has insufficient funds.")

TEST_CARDS: Final[dict[str, Behaviour]] = {
    "pm_card_visa": Behaviour("4242"),
    "pm_card_visa_debit": Behaviour("5556"),
    "pm_card_mastercard": Behaviour("4444", "mastercard"),
    "pm_card_amex": Behaviour("8431", "amex"),
    "pm_card_bypassPending": Behaviour("0077", is_available_at_once=True),
    "pm_card_chargeDeclined": _GENERIC,
    "pm_card_visa_chargeDeclined": _GENERIC,
    "pm_card_chargeDeclinedInsufficientFunds": _FUNDS,
    "pm_card_visa_chargeDeclinedInsufficientFunds": _FUNDS,
    "pm_card_chargeDeclinedLostCard": _declined("9987", "lost_card", "Your card was declined."),
    "pm_card_chargeDeclinedFraudulent": _declined("0019", "fraudulent", "Your card was declined."),
    "pm_card_chargeDeclinedExpiredCard": _declined("0069", "", "Your card has expired.", code="expired_card"),
    "pm_card_chargeDeclinedIncorrectCvc": _declined(
        "0127", "", "Your card's security code is incorrect.", code="incorrect_cvc"
    ),
    "pm_card_chargeDeclinedProcessingError": _declined(
        "0119", "", "An error occurred while processing your card. Try again in a little bit.", code="processing_error"
    ),
    "pm_card_chargeCustomerFail": Behaviour(
        "0341",
        code="card_declined",
        decline_code="generic_decline",
        message="Your card was declined.",
        declines_at_attachment=False,
    ),
    "pm_card_authenticationRequired": Behaviour("3184", needs_authentication="always"),
    "pm_card_authenticationRequiredOnSetup": Behaviour("3155", needs_authentication="unless_saved"),
    "pm_card_createDispute": Behaviour("0259", dispute_reason="fraudulent"),
    "pm_card_createDisputeProductNotReceived": Behaviour("2685", dispute_reason="product_not_received"),
    "pm_card_refundFail": Behaviour("5126", fails_refunds=True),
}

_BY_LAST4: Final = {behaviour.last4: behaviour for behaviour in TEST_CARDS.values()}


def realise(stripe: FakeStripe, account: str, method_id: str, metadata: Object | None = None) -> Object:
    """The payment method of this id; one of the test names makes a new one, as it does at Stripe."""
    behaviour = TEST_CARDS.get(method_id)
    if behaviour is None:
        if not method_id or method_id.startswith("pm_card_"):
            raise absent("PaymentMethod", method_id, param="payment_method")
        return stripe.store.get(account, "payment_method", method_id, param="payment_method")
    fields = payment_method() | {
        "card": card(brand=behaviour.brand, last4=behaviour.last4),
        "metadata": dict(metadata or {}),
    }
    return stripe.store.add(account, fields, prefix="pm")


def behaviour_of(method: Object) -> Behaviour:
    return _BY_LAST4[method["card"]["last4"]]
