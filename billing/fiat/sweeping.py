"""What no event reported: rows that wait too long are refreshed, and what Stripe moved by itself is booked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from django.db import transaction

from billing.account_kinds import AccountKind
from billing.books.chart_of_accounts import AccountName
from billing.fiat import chargebacks, claims, refunds, topups
from billing.models import CardDispute, StripeCursor, TopUp, TopUpRefund
from billing.notices import alerts
from billing.rails import registry
from billing.rails.stripe import booking
from billing.rails.stripe import client as stripe_client
from billing.rails.stripe.booking_types import Booker, booker_of
from billing.rails.stripe.records import CURRENCY, Booking, StripeMissing
from billing.states.fiat import TOP_UP_UNDER_WAY, DisputeState, RefundState
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures, only_one
from marketplace.foundation.ids import new_id
from marketplace.foundation.models import OutboxMessage

ROWS_PER_RUN_MAX: Final = 200  # of each kind, oldest first
PATIENCE: Final = timedelta(minutes=15)
OVERLAP: Final = timedelta(days=1)
FIRST: Final = timedelta(days=30)
CURSOR: Final = "bookings"
OPERATOR: Final = AccountName(AccountKind.OPERATOR_CASH)
# Against which account, and why, a change is booked that no payment, refund, dispute or payout of ours books.
AGAINST: Final[Mapping[Booker, tuple[AccountName, TransferCode]]] = {
    Booker.OPERATOR: (OPERATOR, TransferCode.RAIL_MOVE),
    Booker.COST: (booking.FEES, TransferCode.DEPOSIT_COST),
    Booker.KEPT: (AccountName(AccountKind.STRIPE_IN_TRANSIT), TransferCode.RAIL_MOVE),
    Booker.LOSS: (chargebacks.LOSS, TransferCode.CHARGEBACK),
}


def sweep() -> int:
    """Refresh every row that waits; returns how many. Calls the rails."""
    of_stripe = (_sweep_refunds, _sweep_disputes, book_own_moves, _sweep_claims)
    parts = (_sweep_top_ups, *(of_stripe if stripe_client.is_configured() else ()))
    with only_one("billing.fiat.sweep") as is_mine:
        if not is_mine:
            return 0
        swept = 0
        for part in parts:
            # What Stripe does not answer now must not keep the rest from being refreshed, or paid.
            with log_failures("A part of the sweep could not be done.", part=part.__name__):
                swept += part()
        return swept


def book_own_moves() -> int:
    """Book by the table of types what was not requested through us: the operator's own moves, fees, reserves; how many.

    What a person has to book is left to the reconciliation, which names it and stops payouts.
    """
    begun = clock.now()
    cursor, _ = StripeCursor.objects.get_or_create(name=CURSOR, defaults={"seen_until": begun - FIRST})
    booked = 0
    newest = cursor.seen_until
    try:
        for entry in stripe_client.connect().list_bookings(cursor.seen_until - OVERLAP):
            if entry.currency == CURRENCY:
                booked += _book_own_move(entry)
            elif entry.at > cursor.seen_until:  # once: the overlap lists it again
                _alert_currency(entry)
            newest = max(newest, entry.at)
    finally:  # a list that is too long, or breaks off, is gone on with where it was left
        StripeCursor.objects.filter(pk=CURSOR).update(seen_until=newest)
    return booked


def _alert_currency(entry: Booking) -> None:
    """The books have Stripe's dollars only; what it moves of another currency must not stop what comes behind it."""
    alerts.raise_once(
        f"stripe_currency:{entry.currency}",
        kind="stripe_currency",
        subject=entry.id,
        message=(
            f"Stripe moved {entry.currency} of ours ({entry.type} {entry.id}), and the books have dollars only. Look at"
            " it in Stripe's dashboard, have Stripe convert it, and close this alert."
        ),
    )


def _book_own_move(entry: Booking) -> bool:
    booker = booker_of(entry.type)
    if booker not in AGAINST:
        return False
    against, code = AGAINST[booker]
    with transaction.atomic():
        group_id = new_id()
        if not booking.take(entry, group_id):
            return False
        booking.change_balance(entry, against=against, code=code, group_id=group_id)
        return True


def _sweep_top_ups() -> int:
    """Refresh the payments that wait too long, on every rail that is on."""
    names = [rail.name for rail in registry.requested_payments_on()]
    old = TopUp.objects.filter(state__in=TOP_UP_UNDER_WAY, rail__in=names, created_at__lt=clock.now() - PATIENCE)
    swept = 0
    for top_up in old.select_related("card").order_by("created_at")[:ROWS_PER_RUN_MAX]:
        with log_failures("A top-up could not be asked after.", top_up_id=str(top_up.pk)):
            topups.refresh(top_up)
            swept += 1
    return swept


def _sweep_refunds() -> int:
    """A refund whose call was given up: it was made, or the money is the customer's again."""
    old = TopUpRefund.objects.filter(state=RefundState.REQUESTED, created_at__lt=clock.now() - PATIENCE)
    swept = 0
    for refund in old.select_related("top_up").order_by("created_at")[:ROWS_PER_RUN_MAX]:
        message = OutboxMessage.objects.filter(business_key=f"refund:{refund.pk}").first()
        if message is None or message.state == OutboxMessage.State.WAITING:
            continue
        with log_failures("A refund could not be asked after.", refund_id=str(refund.pk)):
            found = stripe_client.connect().find_refund(refund.top_up.charge_id, {"outbox_id": str(message.pk)})
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
        with log_failures("A dispute could not be asked after.", dispute_id=dispute.stripe_id):
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
        with log_failures("A customer's claims could not be settled.", owner_id=str(owner_id)):
            swept += claims.settle(owner_id) > 0
    return swept + claims.recover_again(ROWS_PER_RUN_MAX)
