"""What a customer has not spent goes back to the card it came from.

The money leaves the balance at once (a pending transfer), the call is made through the outbox, and Stripe's answer
posts or voids it. A refund that was made at Stripe itself is booked as well: from the balance as far as it reaches.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Sum

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.charging import holds
from billing.fiat import claims, recovery
from billing.fiat.errors import NotOurs, RefundRefused, TopUpNotFound
from billing.models import Account, CardDispute, Hold, TopUp, TopUpRefund, Transfer
from billing.money import MICROS_PER_CENT, format_usd
from billing.rails import registry
from billing.rails.stripe import booking
from billing.rails.stripe import client as stripe_client
from billing.rails.stripe.records import Refund
from billing.states.fiat import RefundState, TopUpState
from billing.transfer_codes import TransferCode, TransferMode
from marketplace.foundation import clock, outbox
from marketplace.foundation.ids import new_id
from marketplace.foundation.states import advance, record_birth

CALL: Final = "stripe.refund"
ACTOR: Final = "stripe"


def request_refund(top_up_id: UUID, *, owner_id: UUID, actor: str, amount: int | None = None) -> TopUpRefund:
    """Take the amount (without one: all of the top-up that is left) out of the balance, and send it back.

    Raises TopUpNotFound, RefundRefused, InsufficientFunds when it was spent, AccountFrozen.
    """
    with transaction.atomic():
        top_up = TopUp.objects.select_for_update().filter(pk=top_up_id, owner_id=owner_id).first()
        if top_up is None:
            raise TopUpNotFound
        amount = _check(top_up, amount)
        refund = TopUpRefund(top_up=top_up, amount=amount, actor=actor)
        refund.pending_transfer = _reserve(refund)
        refund.save(force_insert=True)
        record_birth(refund, actor=actor, data={"top_up_id": str(top_up.pk), "amount": str(amount)})
        outbox.enqueue(CALL, f"refund:{refund.pk}", {"refund_id": str(refund.pk)})
        return refund


def refresh_refund(refund_id: str) -> TopUpRefund:
    """Read a refund's state at Stripe, and move ours forward. Calls Stripe; raises NotOurs."""
    return apply_refund(stripe_client.connect().fetch_refund(refund_id))


def refresh_refunds_of(charge_id: str) -> list[TopUpRefund]:
    """The same for all refunds of one charge; Stripe's events of refunds name only that. Calls Stripe."""
    return [apply_refund(refund) for refund in stripe_client.connect().list_refunds(charge_id)]


def apply_refund(reported: Refund) -> TopUpRefund:
    """Book what Stripe reports now: money that left is posted, money that came back is the customer's again.

    What came back pays first what the customer still owes.
    """
    refund = _apply(reported)
    claims.settle(refund.top_up.owner_id)
    return refund


def fail_refund(refund: TopUpRefund, message: str) -> TopUpRefund:
    """It did not go through: what is still reserved is the customer's again."""
    with transaction.atomic():
        refund = TopUpRefund.objects.select_for_update().get(pk=refund.pk)
        if refund.state == RefundState.FAILED:
            return refund
        if refund.state == RefundState.REQUESTED and refund.pending_transfer is not None:
            ledger.post([_resolution(refund.pending_transfer, TransferMode.VOID)], group_id=refund.pk)
        return advance(refund, RefundState.FAILED, actor=ACTOR, message=message, closed_at=clock.now())


def _apply(reported: Refund) -> TopUpRefund:
    with transaction.atomic():
        refund = _find(reported)
        group_id = new_id()
        if reported.booking is not None and booking.take(reported.booking, group_id):
            refund = _post(refund, reported, reported.booking.id, group_id)
        if reported.failure_booking is not None and booking.take(reported.failure_booking, group_id):
            code, balance = TransferCode.DEPOSIT_REFUND, _balance_of(refund.top_up)
            booking.change_balance(reported.failure_booking, against=balance, code=code, group_id=group_id)
        if reported.status in {"failed", "canceled"} and refund.state != RefundState.FAILED:
            refund = fail_refund(refund, reported.failure_reason or reported.status)
        return refund


def _check(top_up: TopUp, amount: int | None) -> int:
    """What can be refunded, in whole cents."""
    if top_up.state != TopUpState.SUCCEEDED:
        raise RefundRefused(why="it was not paid")
    if registry.row_of(top_up.rail).is_pretended:
        raise RefundRefused(why="it was only pretended")
    if not registry.can_refund(top_up.rail):
        raise RefundRefused(why=f"the rail {top_up.rail} sends nothing back")
    if CardDispute.objects.filter(top_up=top_up).exists():
        raise RefundRefused(why="the bank is asking for it back, or has done so")
    earlier = top_up.refunds.exclude(state=RefundState.FAILED).aggregate(sum=Sum("amount"))["sum"] or 0
    left = int(top_up.amount) - int(earlier)
    amount = left if amount is None else amount
    if not 0 < amount <= left or amount % MICROS_PER_CENT:
        raise RefundRefused(why=f"{format_usd(left)} of it is left, in whole cents")
    return amount


def _reserve(refund: TopUpRefund) -> Transfer:
    """Out of the balance; what still waits, because its payer is new, goes back as well."""
    top_up = refund.top_up
    waiting = _lock_waiting(top_up)
    if waiting is not None:
        holds.release_hold(top_up.pk, reason="refunded")
    balance, stripe = open_accounts([_balance_of(top_up), booking.PLATFORM])
    reserve = ledger.NewTransfer(balance, stripe, refund.amount, TransferCode.DEPOSIT_REFUND, mode=TransferMode.PENDING)
    [pending] = ledger.post([reserve], group_id=refund.pk)
    if waiting is not None and waiting.amount > refund.amount:
        holds.place_hold(owner_id=top_up.owner_id, job_id=top_up.pk, amount=waiting.amount - refund.amount)
    return pending


def _find(reported: Refund) -> TopUpRefund:
    """Our row of a refund, locked; one that was made at Stripe itself gets a row of its own."""
    rows = TopUpRefund.objects.select_for_update(of=("self",)).select_related("top_up", "pending_transfer")
    ours = reported.metadata.get("refund_id", "")
    refund = rows.filter(pk=ours).first() if _is_uuid(ours) else rows.filter(stripe_id=reported.id).first()
    if refund is not None:
        return refund
    top_up = TopUp.objects.select_for_update().filter(charge_id=reported.charge_id).exclude(charge_id="").first()
    if top_up is None:
        raise NotOurs
    refund, is_new = TopUpRefund.objects.get_or_create(
        stripe_id=reported.id,
        defaults={"top_up": top_up, "amount": booking.micros(reported.amount_cents), "actor": "at Stripe"},
    )
    if is_new:
        record_birth(refund, actor="at Stripe")
    return refund


def _post(refund: TopUpRefund, reported: Refund, ref: str, group_id: UUID) -> TopUpRefund:
    if refund.pending_transfer is not None and refund.state == RefundState.REQUESTED:
        post = _resolution(refund.pending_transfer, TransferMode.POST, ref=ref)
        ledger.post([post], group_id=group_id)
    else:
        _post_unasked(refund, ref, group_id)
    if refund.state == RefundState.REQUESTED:
        return advance(refund, RefundState.SUCCEEDED, actor=ACTOR, stripe_id=reported.id, closed_at=clock.now())
    return refund


def _post_unasked(refund: TopUpRefund, ref: str, group_id: UUID) -> None:
    """Money left that we had not set aside: the balance pays as far as it reaches, the platform what is short so far.

    A frozen balance pays too: whether the freeze was reported first must not decide who bears the refund.
    """
    name = _balance_of(refund.top_up)
    _lock_waiting(refund.top_up, recovery.LOSS)
    recovery.release_wait(refund.top_up, reason="refunded at Stripe")
    balance, loss, stripe = open_accounts([name, recovery.LOSS, booking.PLATFORM])
    present = Account.objects.get(pk=balance.pk)
    from_balance = min(max(present.available, 0), int(refund.amount))
    refund.shortage = int(refund.amount) - from_balance
    code = TransferCode.DEPOSIT_REFUND
    parts = ((balance, from_balance), (loss, refund.shortage))
    out = [ledger.NewTransfer(debit, stripe, amount, code, external_ref=ref) for debit, amount in parts if amount]
    ledger.post_from_frozen(balance, out, group_id=group_id)
    refund.save(update_fields=["shortage"])


def _lock_waiting(top_up: TopUp, *names: AccountName) -> Hold | None:
    """What of the top-up waits because its payer is new; it, and every account that a refund touches, are locked."""
    waiting = holds.lock_open_hold(top_up.pk)
    set_aside = [AccountName(AccountKind.JOB_HOLD, top_up.owner_id, top_up.pk)] if waiting is not None else []
    booking.lock(_balance_of(top_up), *set_aside, *names)
    return waiting


def _resolution(pending: Transfer, mode: TransferMode, *, ref: str = "") -> ledger.NewTransfer:
    return ledger.NewTransfer(
        pending.debit,
        pending.credit,
        pending.amount,
        TransferCode.DEPOSIT_REFUND,
        external_ref=ref,
        mode=mode,
        pending_id=pending.pk,
    )


def _balance_of(top_up: TopUp) -> AccountName:
    return AccountName(AccountKind.CUSTOMER_AVAILABLE, top_up.owner_id)


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
