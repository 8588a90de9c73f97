"""Payments in by card: on Stripe's page, or with a card that Stripe keeps.

What Stripe refuses ends the payment. What it does not answer is asked again, and looked up first by the id of the
outbox message in the metadata.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar, Final
from uuid import UUID

from django.conf import settings

from billing.dispatch import Hopeless
from billing.models import StripeCustomer, TopUp
from billing.models.ledger import USD_ASSET_ID
from billing.money import MICROS_PER_CENT
from billing.rails.errors import RailError
from billing.rails.payments_in import PaymentCall, PaymentFate, PaymentOutcome, Receipt, RequestedPayments
from billing.rails.stripe import booking, customers
from billing.rails.stripe import client as stripe_client
from billing.rails.stripe.client import Key
from billing.rails.stripe.records import CURRENCY, CardDeclined, Intent, StripeRefused
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage

CHARGE_HOURS_MAX: Final = 6  # an older request charges no card
PAGE_LIFE: Final = timedelta(hours=25)  # Stripe closes a page after 24 hours
NOT_PAID: Final = frozenset({"requires_payment_method", "requires_action", "canceled"})


class StripePayments(RequestedPayments):
    """Takes dollars by card."""

    name: ClassVar[str] = "stripe"
    methods: ClassVar[frozenset[str]] = frozenset(TopUp.Method.values)
    can_refund: ClassVar[bool] = True

    @classmethod
    def is_on(cls) -> bool:
        return stripe_client.is_configured()

    def open(self, payment: TopUp, call: PaymentCall) -> PaymentOutcome:
        try:
            customer_id = customers.find_or_create(payment.owner_id)
            if payment.method == TopUp.Method.CHECKOUT:
                return _open_page(payment, call, customer_id)
            return _charge(payment, call, customer_id)
        except StripeRefused as error:
            if isinstance(error, CardDeclined) and error.intent_id:
                _give_up_intent(error.intent_id)
            return PaymentOutcome(PaymentFate.FAILED, reason=error.code or "refused", message=error.message)

    def find(self, payment: TopUp) -> PaymentOutcome:
        stripe = stripe_client.connect()
        if payment.session_id:
            page = stripe.fetch_session(payment.session_id)
            found = outcome_of(stripe.fetch_intent(page.intent_id), payment) if page.intent_id else None
            if page.status == "expired" and (found is None or found.fate != PaymentFate.PAID):
                return page_expired()
            return found or PaymentOutcome(PaymentFate.UNDER_WAY)
        if payment.intent_id:
            return outcome_of(stripe.fetch_intent(payment.intent_id), payment)
        return _find_unanswered(payment)

    def claim(self, receipt: Receipt, group_id: UUID) -> bool:
        return booking.claim(receipt.reference, group_id)


def outcome_of(intent: Intent, payment: TopUp) -> PaymentOutcome:
    """What Stripe reports of a payment; raises RailError while it is paid and Stripe does not report the fee."""
    if intent.status == "succeeded":
        entry = intent.booking
        if entry is None:
            raise RailError(f"{intent.id} is paid, and Stripe does not say yet what it cost")
        booking.require_currency(entry)
        receipt = Receipt(
            owner_id=payment.owner_id,
            asset_id=USD_ASSET_ID,
            amount=booking.micros(entry.amount_cents),
            reference=entry.id,
            payer="stripe",
            cost=booking.micros(entry.fee_cents),
        )
        return PaymentOutcome(PaymentFate.PAID, receipt, payment_id=intent.id, charge_id=intent.charge_id)
    # On Stripe's page a customer may try another card, so only the page's expiry ends such a payment.
    if intent.status in NOT_PAID and payment.method != TopUp.Method.CHECKOUT:
        reason, message = intent.error_code or intent.status, intent.error_message or "The card was not charged."
        return PaymentOutcome(PaymentFate.FAILED, reason=reason, message=message)
    return PaymentOutcome(PaymentFate.UNDER_WAY, payment_id=intent.id)


def page_expired() -> PaymentOutcome:
    """The outcome of a page that nobody paid on in time."""
    return PaymentOutcome(PaymentFate.EXPIRED, reason="expired", message="The payment page was not used in time.")


def _find_unanswered(payment: TopUp) -> PaymentOutcome:
    """What became of a payment whose call ended without an answer: it was made, or it never reached Stripe."""
    message = OutboxMessage.objects.filter(business_key=f"top_up:{payment.pk}").first()
    if message is None or message.state == OutboxMessage.State.WAITING:
        return PaymentOutcome(PaymentFate.UNDER_WAY)  # its call will still be made
    payer = StripeCustomer.objects.filter(owner_id=payment.owner_id).exclude(stripe_id=None).first()
    marks = {"outbox_id": str(message.pk)}
    intent = stripe_client.connect().find_intent(payer.stripe_id or "", marks) if payer else None
    if intent is not None:
        return outcome_of(intent, payment)
    if payment.created_at >= clock.now() - PAGE_LIFE:
        return PaymentOutcome(PaymentFate.UNDER_WAY)
    text = "The payment processor could not be reached."
    return PaymentOutcome(PaymentFate.EXPIRED, reason="not_reached", message=text)


def _open_page(payment: TopUp, call: PaymentCall, customer_id: str) -> PaymentOutcome:
    session = stripe_client.connect().create_checkout(_page_params(payment, call, customer_id), key=_key(call))
    return PaymentOutcome(PaymentFate.UNDER_WAY, page_id=session.id, page_url=session.url)


def _page_params(payment: TopUp, call: PaymentCall, customer_id: str) -> dict[str, Any]:
    metadata = _metadata(payment, call)
    price = {
        "currency": CURRENCY,
        "unit_amount": int(payment.amount) // MICROS_PER_CENT,
        "product_data": {"name": "Prepaid balance"},
    }
    intent: dict[str, Any] = {"metadata": metadata, "capture_method": "automatic"}
    if call.save_card:
        intent["setup_future_usage"] = "off_session"
    params: dict[str, Any] = {
        "mode": "payment",
        "customer": customer_id,
        "client_reference_id": str(payment.pk),
        "allowed_payment_method_types": ["card"],
        "line_items": [{"price_data": price, "quantity": 1}],
        "payment_intent_data": intent,
        "metadata": metadata,
        "success_url": f"{settings.SOUK_API_URL}/?top_up={payment.pk}",
        "cancel_url": f"{settings.SOUK_API_URL}/?top_up={payment.pk}",
    }
    if settings.SOUK_STRIPE_TAX:
        params |= {
            "automatic_tax": {"enabled": True},
            "tax_id_collection": {"enabled": True},
            "billing_address_collection": "required",
            "customer_update": {"address": "auto", "name": "auto"},
        }
    return params


def _charge(payment: TopUp, call: PaymentCall, customer_id: str) -> PaymentOutcome:
    if payment.card is None:
        raise Hopeless(f"top-up {payment.pk} names no card")
    stripe, metadata = stripe_client.connect(), _metadata(payment, call)
    if call.created_at < clock.now() - timedelta(hours=CHARGE_HOURS_MAX):
        found = stripe.find_intent(customer_id, metadata)
        if found is None:
            text = "The card could not be charged in time."
            return PaymentOutcome(PaymentFate.EXPIRED, reason="too_late", message=text)
        intent = found
    else:
        intent = stripe.charge_card(
            customer_id=customer_id,
            card_id=payment.card.stripe_id,
            amount_cents=int(payment.amount) // MICROS_PER_CENT,
            metadata=metadata,
            key=_key(call),
        )
    if intent.status in {"requires_action", "requires_payment_method"}:
        # The owner is away and cannot confirm; the payment page is where a bank may ask.
        _give_up_intent(intent.id)
    return outcome_of(intent, payment)


def _give_up_intent(intent_id: str) -> None:
    """See that a payment which nobody will finish can never be paid."""
    with suppress(StripeRefused):  # it is over already
        stripe_client.connect().cancel_intent(intent_id)


def _key(call: PaymentCall) -> Key:
    return Key.at(call.id, created_at=call.created_at, attempts=call.attempts)


def _metadata(payment: TopUp, call: PaymentCall) -> dict[str, str]:
    return {
        "outbox_id": str(call.id),
        "top_up_id": str(payment.pk),
        "organisation_id": str(payment.owner_id),
    }
