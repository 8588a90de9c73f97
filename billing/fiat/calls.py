"""The calls to the outside that the outbox holds for cards: each is made outside of any transaction, and
any number of times.

What the other side refuses ends what was requested; a call without an answer is looked up, then repeated.
"""

from __future__ import annotations

from uuid import UUID

from billing.dispatch import handles
from billing.fiat import accounts, chargebacks, evidence, recovery, refunds, topups
from billing.models import CardDispute, TopUp, TopUpRefund, TransferReversal
from billing.money import MICROS_PER_CENT
from billing.rails import registry
from billing.rails.payments_in import PaymentCall
from billing.rails.stripe import client as stripe_client
from billing.rails.stripe.client import Key
from billing.rails.stripe.records import StripeRefused
from billing.states.fiat import RefundState, ReversalState, TopUpState
from marketplace.foundation.models import OutboxMessage


@handles(topups.CALL)
def open_top_up(message: OutboxMessage) -> str:
    """Have the top-up's rail make the page, or charge the card."""
    top_up = TopUp.objects.select_related("card").get(pk=message.payload["top_up_id"])
    if top_up.state != TopUpState.REQUESTED:
        return top_up.session_id or top_up.intent_id
    save_card = bool(message.payload.get("save_card"))
    call = PaymentCall(message.pk, created_at=message.created_at, attempts=message.attempts, save_card=save_card)
    outcome = registry.open_payments(top_up.rail).open(top_up, call)
    topups.apply_opened(top_up, outcome)
    return outcome.page_id or outcome.payment_id or outcome.reason


@handles(refunds.CALL)
def make_refund(message: OutboxMessage) -> str:
    """Send money back to the card it came from."""
    refund = TopUpRefund.objects.select_related("top_up").get(pk=message.payload["refund_id"])
    if refund.state != RefundState.REQUESTED:
        return refund.stripe_id or "ended"
    try:
        reported = stripe_client.connect().refund_charge(
            charge_id=refund.top_up.charge_id,
            amount_cents=int(refund.amount) // MICROS_PER_CENT,
            metadata={"outbox_id": str(message.pk), "refund_id": str(refund.pk)},
            key=Key.of(message),
        )
    except StripeRefused as error:
        refunds.fail_refund(refund, error.message)
        return "refused"
    refunds.apply_refund(reported)
    return reported.id


@handles(recovery.REVERSAL_CALL)
def reverse_transfer(message: OutboxMessage) -> str:
    """Reverse, for a dispute, what went to a provider."""
    reversal = TransferReversal.objects.get(pk=message.payload["reversal_id"])
    if reversal.state != ReversalState.REQUESTED:
        return "ended"
    stripe = stripe_client.connect()
    try:
        reported = stripe.reverse_transfer(
            reversal.stripe_transfer_id,
            amount_cents=int(reversal.amount) // MICROS_PER_CENT,
            metadata={"outbox_id": str(message.pk), "dispute_id": str(reversal.dispute_id)},
            key=Key.of(message),
        )
    except StripeRefused as error:
        recovery.refuse_reversal(reversal.pk, error.message)
        return "refused"
    recovery.book_reversal(reversal.pk, stripe.fetch_booking(reported.booking_id))
    return reported.id


@handles(chargebacks.EVIDENCE_CALL)
def send_evidence(message: OutboxMessage) -> str:
    """Hand the bank our side of the dispute."""
    dispute = CardDispute.objects.get(pk=message.payload["dispute_id"])
    reported = stripe_client.connect().submit_evidence(
        dispute.stripe_id, text=dispute.evidence, product=evidence.PRODUCT, key=Key.of(message)
    )
    return reported.id


@handles(accounts.CALL)
def create_account(message: OutboxMessage) -> str:
    """Make a provider's account at Stripe."""
    owner_id = UUID(message.payload["owner_id"])
    try:
        return accounts.create(owner_id, is_repeat=Key.of(message).is_repeat)
    except StripeRefused as error:
        accounts.refuse(owner_id, error.message)
        return "refused"
