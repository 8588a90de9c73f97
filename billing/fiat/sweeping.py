"""What no event told us: whatever waits too long is asked after, and what Stripe moved by itself is booked."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db import transaction

from billing.chart import AccountName
from billing.fiat import booking, chargebacks, claims, pages, refunds, topups
from billing.fiat.states import TOP_UP_UNDER_WAY, DisputeState, RefundState, TopUpState
from billing.kinds import AccountKind, TransferCode
from billing.models import CardDispute, StripeCursor, StripeCustomer, TopUp, TopUpRefund
from billing.rails import stripe_rail
from billing.rails.stripe_records import Booking, StripeMissing
from marketplace.foundation import clock
from marketplace.foundation.exclusive import alone, only_one
from marketplace.foundation.ids import new_id
from marketplace.foundation.models import OutboxMessage

ROWS_PER_RUN_MAX: Final = 200  # of each kind, oldest first
PATIENCE: Final = timedelta(minutes=15)
PAGE_LIFE: Final = timedelta(hours=25)  # Stripe closes a page after 24
OVERLAP: Final = timedelta(days=1)
FIRST: Final = timedelta(days=30)
CURSOR: Final = "bookings"
OPERATOR: Final = AccountName(AccountKind.OPERATOR_CASH)
# What the operator moves between Stripe and its own bank, and what Stripe charges by the month.
OWN_MOVES: Final = frozenset({"payout", "payout_cancel", "payout_failure", "topup", "topup_reversal"})
OWN_COSTS: Final = frozenset({"stripe_fee", "stripe_fx_fee", "tax_fee", "network_cost"})


def sweep() -> int:
    """Ask after everything that waits; how many rows were asked after. Calls Stripe."""
    if not stripe_rail.is_configured():
        return 0
    with only_one("billing.fiat.sweep") as is_mine:
        if not is_mine:
            return 0
        swept = 0
        for part in (_sweep_top_ups, _sweep_refunds, _sweep_disputes, book_own_moves, _sweep_claims):
            # What Stripe does not answer now must not keep the rest from being asked, or paid.
            with alone("A part of the sweep could not be done.", part=part.__name__):
                swept += part()
        return swept


def book_own_moves() -> int:
    """Book what nobody asked for through us: the operator's own payouts, and Stripe's own fees; how many."""
    begun = clock.now()
    cursor, _ = StripeCursor.objects.get_or_create(name=CURSOR, defaults={"seen_until": begun - FIRST})
    booked = 0
    newest = cursor.seen_until
    try:
        for entry in stripe_rail.door().list_bookings(cursor.seen_until - OVERLAP):
            booked += _book_own_move(entry)
            newest = max(newest, entry.at)
    finally:  # a list that is too long, or breaks off, is gone on with where it was left
        StripeCursor.objects.filter(pk=CURSOR).update(seen_until=newest)
    return booked


def _book_own_move(entry: Booking) -> bool:
    if entry.type not in OWN_MOVES | OWN_COSTS:
        return False
    is_cost = entry.type in OWN_COSTS
    against = booking.FEES if is_cost else OPERATOR
    code = TransferCode.DEPOSIT_COST if is_cost else TransferCode.RAIL_MOVE
    with transaction.atomic():
        group_id = new_id()
        if not booking.take(entry, group_id):
            return False
        booking.change_balance(entry, against=against, code=code, group_id=group_id)
        return True


def _sweep_top_ups() -> int:
    old = TopUp.objects.filter(
        state__in=TOP_UP_UNDER_WAY, is_fake=False, created_at__lt=clock.now() - PATIENCE
    ).order_by("created_at")
    swept = 0
    for top_up in old[:ROWS_PER_RUN_MAX]:
        with alone("A top-up could not be asked after.", top_up_id=str(top_up.pk)):
            _ask_after(top_up)
            swept += 1
    return swept


def _ask_after(top_up: TopUp) -> None:
    if top_up.session_id:
        pages.refresh_page(top_up.session_id)
        return
    if top_up.intent_id:
        topups.refresh_intent(top_up.intent_id)
        return
    message = OutboxMessage.objects.filter(business_key=f"top_up:{top_up.pk}").first()
    if message is None or message.state == OutboxMessage.State.WAITING:
        return  # its call will still be made
    payer = StripeCustomer.objects.filter(owner_id=top_up.owner_id).exclude(stripe_id=None).first()
    marks = {"outbox_id": str(message.pk)}
    intent = stripe_rail.door().find_intent(payer.stripe_id or "", marks) if payer else None
    if intent is not None:
        topups.apply_intent(intent)
    elif top_up.created_at < clock.now() - PAGE_LIFE:
        text = "The payment processor could not be reached."
        topups.end_top_up(top_up, TopUpState.EXPIRED, reason="not_reached", message=text)


def _sweep_refunds() -> int:
    """A refund whose call was given up: it was made, or the money is the customer's again."""
    old = TopUpRefund.objects.filter(state=RefundState.REQUESTED, created_at__lt=clock.now() - PATIENCE)
    swept = 0
    for refund in old.select_related("top_up").order_by("created_at")[:ROWS_PER_RUN_MAX]:
        message = OutboxMessage.objects.filter(business_key=f"refund:{refund.pk}").first()
        if message is None or message.state == OutboxMessage.State.WAITING:
            continue
        with alone("A refund could not be asked after.", refund_id=str(refund.pk)):
            found = stripe_rail.door().find_refund(refund.top_up.charge_id, {"outbox_id": str(message.pk)})
            if found is not None:
                refunds.apply_refund(found)
            else:
                refunds.fail_refund(refund, "The payment processor could not be reached.")
            swept += 1
    return swept


def _sweep_disputes() -> int:
    alive = CardDispute.objects.filter(state__in=[DisputeState.INQUIRY, DisputeState.OPEN]).order_by("created_at")
    swept = 0
    for dispute in alive[:ROWS_PER_RUN_MAX]:
        with alone("A dispute could not be asked after.", dispute_id=dispute.stripe_id):
            try:
                chargebacks.refresh_dispute(dispute.stripe_id)
            except StripeMissing:
                continue
            swept += 1
    return swept


def _sweep_claims() -> int:
    """Money that came by another way than a card, or was let go meanwhile, pays what its owner still owes."""
    swept = 0
    for owner_id in claims.owners_who_can_pay(ROWS_PER_RUN_MAX):
        with alone("A customer's claims could not be settled.", owner_id=str(owner_id)):
            swept += claims.settle(owner_id) > 0
    return swept + claims.recover_again(ROWS_PER_RUN_MAX)
