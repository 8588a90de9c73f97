"""The calls to Stripe that the outbox holds: each is made outside of any transaction, and any number of times.

What Stripe refuses ends what was wished for; what it does not answer is asked again, and looked up first.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings

from billing.dispatch import Hopeless, handles
from billing.fiat import accounts, chargebacks, customers, evidence, recovery, refunds, topups
from billing.fiat.states import TOP_UP_UNDER_WAY, RefundState, ReversalState, TopUpState
from billing.models import CardDispute, TopUp, TopUpRefund, TransferReversal
from billing.money import MICROS_PER_CENT
from billing.rails import stripe_rail
from billing.rails.stripe_rail import Key
from billing.rails.stripe_records import CURRENCY, CardDeclined, StripeRefused
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from marketplace.foundation.states import advance

CHARGE_HOURS_MAX: Final = 6  # nobody's card is charged for a wish that is older


@handles(topups.CALL)
def open_top_up(message: OutboxMessage) -> str:
    """Make the page, or charge the card."""
    top_up = TopUp.objects.select_related("card").get(pk=message.payload["top_up_id"])
    if top_up.state != TopUpState.REQUESTED:
        return top_up.session_id or top_up.intent_id
    try:
        customer_id = customers.find_or_create(top_up.owner_id)
        if top_up.method == TopUp.Method.CHECKOUT:
            return _open_page(top_up, message, customer_id)
        return _charge(top_up, message, customer_id)
    except StripeRefused as error:
        if isinstance(error, CardDeclined) and error.intent_id:
            _give_up_intent(error.intent_id)
        topups.end_top_up(top_up, TopUpState.FAILED, reason=error.code or "refused", message=error.message)
        return "refused"


@handles(refunds.CALL)
def make_refund(message: OutboxMessage) -> str:
    """Send money back to the card it came from."""
    refund = TopUpRefund.objects.select_related("top_up").get(pk=message.payload["refund_id"])
    if refund.state != RefundState.REQUESTED:
        return refund.stripe_id or "ended"
    try:
        said = stripe_rail.door().refund_charge(
            charge_id=refund.top_up.charge_id,
            amount_cents=int(refund.amount) // MICROS_PER_CENT,
            metadata={"outbox_id": str(message.pk), "refund_id": str(refund.pk)},
            key=Key.of(message),
        )
    except StripeRefused as error:
        refunds.fail_refund(refund, error.message)
        return "refused"
    refunds.apply_refund(said)
    return said.id


@handles(recovery.REVERSAL_CALL)
def reverse_transfer(message: OutboxMessage) -> str:
    """Take back, for a dispute, what went to a provider."""
    reversal = TransferReversal.objects.get(pk=message.payload["reversal_id"])
    if reversal.state != ReversalState.REQUESTED:
        return "ended"
    door = stripe_rail.door()
    try:
        said = door.reverse_transfer(
            reversal.stripe_transfer_id,
            amount_cents=int(reversal.amount) // MICROS_PER_CENT,
            metadata={"outbox_id": str(message.pk), "dispute_id": str(reversal.dispute_id)},
            key=Key.of(message),
        )
    except StripeRefused as error:
        recovery.refuse_reversal(reversal.pk, error.message)
        return "refused"
    recovery.book_reversal(reversal.pk, door.fetch_booking(said.booking_id))
    return said.id


@handles(chargebacks.EVIDENCE_CALL)
def send_evidence(message: OutboxMessage) -> str:
    """Hand the bank our side of the story."""
    dispute = CardDispute.objects.get(pk=message.payload["dispute_id"])
    said = stripe_rail.door().submit_evidence(
        dispute.stripe_id, text=dispute.evidence, product=evidence.PRODUCT, key=Key.of(message)
    )
    return said.id


@handles(accounts.CALL)
def create_account(message: OutboxMessage) -> str:
    """Make a provider's account at Stripe."""
    owner_id = UUID(message.payload["owner_id"])
    try:
        return accounts.create(owner_id, is_repeat=Key.of(message).is_repeat)
    except StripeRefused as error:
        accounts.refuse(owner_id, error.message)
        return "refused"


def _open_page(top_up: TopUp, message: OutboxMessage, customer_id: str) -> str:
    params = _page_params(top_up, message, customer_id)
    session = stripe_rail.door().create_checkout(params, key=Key.of(message))
    top_up.refresh_from_db()
    if top_up.state == TopUpState.REQUESTED:
        advance(top_up, TopUpState.OPEN, session_id=session.id, checkout_url=session.url)
    return session.id


def _page_params(top_up: TopUp, message: OutboxMessage, customer_id: str) -> dict[str, Any]:
    metadata = _metadata(top_up, message)
    price = {
        "currency": CURRENCY,
        "unit_amount": int(top_up.amount) // MICROS_PER_CENT,
        "product_data": {"name": "Prepaid balance"},
    }
    payment: dict[str, Any] = {"metadata": metadata, "capture_method": "automatic"}
    if message.payload.get("save_card"):
        payment["setup_future_usage"] = "off_session"
    params: dict[str, Any] = {
        "mode": "payment",
        "customer": customer_id,
        "client_reference_id": str(top_up.pk),
        "allowed_payment_method_types": ["card"],
        "line_items": [{"price_data": price, "quantity": 1}],
        "payment_intent_data": payment,
        "metadata": metadata,
        "success_url": f"{settings.SOUK_API_URL}/?top_up={top_up.pk}",
        "cancel_url": f"{settings.SOUK_API_URL}/?top_up={top_up.pk}",
    }
    if settings.SOUK_STRIPE_TAX:
        params |= {
            "automatic_tax": {"enabled": True},
            "tax_id_collection": {"enabled": True},
            "billing_address_collection": "required",
            "customer_update": {"address": "auto", "name": "auto"},
        }
    return params


def _charge(top_up: TopUp, message: OutboxMessage, customer_id: str) -> str:
    if top_up.card is None:
        raise Hopeless(f"top-up {top_up.pk} names no card")
    door, metadata = stripe_rail.door(), _metadata(top_up, message)
    if message.created_at < clock.now() - timedelta(hours=CHARGE_HOURS_MAX):
        found = door.find_intent(customer_id, metadata)
        if found is None:
            text = "The card could not be charged in time."
            topups.end_top_up(top_up, TopUpState.EXPIRED, reason="too_late", message=text)
            return "too late"
        intent = found
    else:
        intent = door.charge_card(
            customer_id=customer_id,
            card_id=top_up.card.stripe_id,
            amount_cents=int(top_up.amount) // MICROS_PER_CENT,
            metadata=metadata,
            key=Key.of(message),
        )
    if intent.status in {"requires_action", "requires_payment_method"}:
        # The owner is away and cannot confirm; the payment page is where a bank may ask.
        _give_up_intent(intent.id)
    top_up = topups.apply_intent(intent)
    if top_up.state in TOP_UP_UNDER_WAY and not top_up.intent_id:
        advance(top_up, TopUpState.OPEN, only_from=[TopUpState.REQUESTED], intent_id=intent.id)
    return intent.id


def _give_up_intent(intent_id: str) -> None:
    """See that a payment which nobody will finish can never be paid."""
    with suppress(StripeRefused):  # it is over already
        stripe_rail.door().cancel_intent(intent_id)


def _metadata(top_up: TopUp, message: OutboxMessage) -> dict[str, str]:
    return {
        "outbox_id": str(message.pk),
        "top_up_id": str(top_up.pk),
        "organisation_id": str(top_up.owner_id),
    }
