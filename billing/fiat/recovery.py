"""Who pays for a chargeback: the customer, then reserves, then balances of those they paid, then the platform."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Case, F, OuterRef, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce, Least

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.charging import holds
from billing.fields import AmountField
from billing.models import (
    Account,
    CardDispute,
    ChargebackRecovery,
    Hold,
    OffenceTaking,
    Payout,
    SettlementShare,
    TopUp,
    TransferReversal,
)
from billing.money import MICROS_PER_CENT
from billing.rails.stripe import booking
from billing.rails.stripe.records import Booking
from billing.states import DisputeState as LeaseDisputeState
from billing.states import PayoutState
from billing.states.fiat import DisputeState, ReversalState
from billing.transfer_codes import TransferCode
from marketplace.foundation import outbox
from marketplace.foundation.states import advance, record_birth

REVERSAL_CALL: Final = "stripe.reversal"
PROVIDERS_MAX: Final = 200  # of one dispute; those who were paid most come first
REVERSALS_MAX: Final = 200
STRIPE_RAIL: Final = "stripe"
LOSS: Final = AccountName(AccountKind.CHARGEBACK_LOSS)
RECOVERED: Final = (DisputeState.OPEN, DisputeState.LOST)  # in these states providers or the platform bear it


def recover(dispute: CardDispute) -> int:
    """Take what can be had, in the order of the design; a repeat takes what came since. What it took, in micro-USD.

    The caller holds the dispute's row.
    """
    owner_id = dispute.top_up.owner_id
    kept = kept_by_providers(dispute)
    names = [*own_accounts(owner_id), *_of_providers(kept, owner_id)]
    booking.lock(LOSS, *names)
    need = missing(dispute)
    room = {provider_id: amount - _taken_from(dispute, provider_id) for provider_id, amount in kept.items()}
    taken = 0
    for account in _locked(names):
        is_own, owner = account.owner_id == owner_id, account.owner_id
        if account.is_frozen and not is_own:
            continue  # the operator is looking at this provider
        limit = need if is_own or owner is None else min(need, room.get(owner, 0))
        amount = min(limit, account.available)
        if amount > 0:
            take(dispute, account, amount)
            need, taken = need - amount, taken + amount
            if owner in room and not is_own:
                room[owner] -= amount
    if need > 0:
        _ask_transfers_back(dispute, need, room)
    return taken


def own_accounts(owner_id: UUID) -> list[AccountName]:
    """What the customer has, in the order in which it pays: who provides as well pays with what they earned."""
    kinds = (AccountKind.CUSTOMER_AVAILABLE, AccountKind.PROVIDER_RESERVE, AccountKind.PROVIDER_AVAILABLE)
    return [AccountName(kind, owner_id) for kind in kinds]


def lock_all(dispute: CardDispute) -> None:
    """Whatever a dispute may touch, in the one order for all: the hold of what waits, then every account."""
    owner_id, top_up_id = dispute.top_up.owner_id, dispute.top_up_id
    waiting = holds.lock_open_hold(top_up_id)
    kept = kept_by_providers(dispute)
    names = [*own_accounts(owner_id), *_of_providers(kept, owner_id)]
    if waiting is not None:
        names.append(AccountName(AccountKind.JOB_HOLD, owner_id, top_up_id))
    booking.lock(LOSS, *names, also=carriers(dispute))


def carriers(dispute: CardDispute) -> list[UUID]:
    """The accounts that have paid for a dispute."""
    return list(dispute.recoveries.filter(given_back=None).values_list("account_id", flat=True))


def relieve(dispute: CardDispute, balance: Account, limit: int) -> int:
    """Let the customer's balance pay what others paid for them, who paid last first; how much, up to the limit.

    In the end it is as if this money had been there when the bank took it back. The caller holds all locks.
    """
    paid = 0
    others = dispute.recoveries.filter(given_back=None).exclude(account__owner_id=dispute.top_up.owner_id)
    for one in others.select_related("account").order_by("-transfer__seq"):
        part = min(int(one.amount), limit - paid)
        if part <= 0:
            break
        _return(dispute, one, TransferCode.CHARGEBACK_RECOVERY)
        if part < one.amount:
            take(dispute, one.account, int(one.amount) - part)
        take(dispute, balance, part)
        paid += part
    return paid


def release_wait(top_up: TopUp, *, reason: str) -> None:
    """What was set aside because its payer is new was not spent: it is in the balance, to be taken."""
    if Hold.objects.open().filter(job_id=top_up.pk).exists():
        holds.release_hold(top_up.pk, reason=reason)


def missing(dispute: CardDispute) -> int:
    """The part of the loss that is neither recovered nor being recovered."""
    recovered = dispute.recoveries.filter(given_back=None).aggregate(sum=Sum("amount"))["sum"] or 0
    asked = dispute.reversals.filter(state=ReversalState.REQUESTED).aggregate(sum=Sum("amount"))["sum"] or 0
    return int(dispute.loss) - int(recovered) - int(asked)


def take(dispute: CardDispute, account: Account, amount: int) -> None:
    """From one account, for one dispute; remembered, so that a dispute that is won gives it back."""
    [loss] = open_accounts([LOSS])
    [transfer] = ledger.post_from_frozen(
        account, [recovery_of(account, loss, amount, dispute.stripe_id)], group_id=dispute.pk
    )
    ChargebackRecovery.objects.create(dispute=dispute, account=account, amount=amount, transfer=transfer)


def recovery_of(account: Account, loss: Account, amount: int, ref: str) -> ledger.NewTransfer:
    """The transfer that makes the platform's loss smaller."""
    return ledger.NewTransfer(account, loss, amount, TransferCode.CHARGEBACK_RECOVERY, external_ref=ref)


def give_back(dispute: CardDispute) -> None:
    """The dispute was won: every account gets what was taken from it. A repeat finds nothing left to give."""
    booking.lock(LOSS, also=carriers(dispute))
    taken = dispute.recoveries.filter(given_back=None).select_related("account")
    for one in taken.select_for_update(of=("self",)).order_by("pk"):
        _return(dispute, one, TransferCode.CHARGEBACK_WON)


def _return(dispute: CardDispute, one: ChargebackRecovery, code: TransferCode) -> None:
    [loss] = open_accounts([LOSS])
    back = ledger.NewTransfer(loss, one.account, one.amount, code, external_ref=dispute.stripe_id)
    [one.given_back] = ledger.post([back], group_id=dispute.pk)
    one.save(update_fields=["given_back"])


def book_reversal(reversal_id: UUID, entry: Booking) -> TransferReversal:
    """A transfer came back: it lowers the loss, or is the provider's again where the dispute was won meanwhile."""
    with transaction.atomic():
        reversal = TransferReversal.objects.select_related("dispute").get(pk=reversal_id)
        dispute = CardDispute.objects.select_for_update().get(pk=reversal.dispute_id)
        reversal = TransferReversal.objects.select_for_update().get(pk=reversal_id)
        if reversal.state != ReversalState.REQUESTED or not booking.take(entry, reversal.pk):
            return reversal
        code = TransferCode.CHARGEBACK_RECOVERY
        paid_out = AccountName(AccountKind.PROVIDER_AVAILABLE, reversal.provider_id)
        booking.lock(LOSS, paid_out, also=carriers(dispute))
        stripe, loss, provider = open_accounts([booking.PLATFORM, LOSS, paid_out])
        amount = booking.micros(entry.amount_cents)
        [transfer] = ledger.post(
            [ledger.NewTransfer(stripe, loss, amount, code, external_ref=booking.ref_of(entry))], group_id=reversal.pk
        )
        ChargebackRecovery.objects.create(dispute=dispute, account=provider, amount=amount, transfer=transfer)
        reversal = advance(reversal, ReversalState.SUCCEEDED, actor="stripe")
        if dispute.state == DisputeState.WON:
            give_back(dispute)
        return reversal


def refuse_reversal(reversal_id: UUID, message: str) -> TransferReversal:
    """Stripe cannot reverse it: the platform bears the loss."""
    reversal = TransferReversal.objects.get(pk=reversal_id)
    if reversal.state != ReversalState.REQUESTED:
        return reversal
    return advance(reversal, ReversalState.REFUSED, actor="stripe", message=message)


def kept_by_providers(dispute: CardDispute) -> dict[UUID, int]:
    """What each provider kept of what this customer paid after the top-up: the limit of what is recovered.

    Not what a lease's dispute froze or gave away, and not what an offence took: that they lost already.
    """
    since = dispute.top_up.credited_at
    if since is None or not settings.SOUK_CHARGEBACK_PROVIDER_DAYS:
        return {}
    shares = SettlementShare.objects.filter(
        settlement__owner_id=dispute.top_up.owner_id,
        settlement__asset_id=booking.PLATFORM.asset_id,
        settlement__created_at__gte=since,
        settlement__created_at__lt=since + timedelta(days=settings.SOUK_CHARGEBACK_PROVIDER_DAYS),
    )
    taken = OffenceTaking.objects.filter(share=OuterRef("pk")).order_by().values("share").annotate(sum=Sum("amount"))
    # A decision may leave the provider more than its pay, of the platform's fee; that is not recovered.
    left = F("paid") - Coalesce(Subquery(taken.values("sum")), 0, output_field=AmountField())
    kept = Case(
        When(dispute__state__in=[LeaseDisputeState.OPENED, LeaseDisputeState.ANSWERED], then=Value(0)),
        When(dispute__state=LeaseDisputeState.DECIDED, then=Least(F("dispute__to_provider"), left)),
        default=left,
        output_field=AmountField(),
    )
    sums = shares.annotate(kept=kept).values("provider_id").annotate(sum=Sum("kept"))
    rows = sums.filter(sum__gt=0).order_by("-sum", "provider_id")[:PROVIDERS_MAX]
    return {row["provider_id"]: int(row["sum"]) for row in rows}


def _of_providers(kept: Collection[UUID], owner_id: UUID) -> list[AccountName]:
    """First every reserve, then every balance, of all but the customer."""
    return [
        AccountName(kind, provider_id)
        for kind in (AccountKind.PROVIDER_RESERVE, AccountKind.PROVIDER_AVAILABLE)
        for provider_id in kept
        if provider_id != owner_id
    ]


def _taken_from(dispute: CardDispute, provider_id: UUID) -> int:
    """By any dispute of this customer: two disputes do not take the same pay twice."""
    same_customer = ChargebackRecovery.objects.filter(
        dispute__top_up__owner_id=dispute.top_up.owner_id, account__owner_id=provider_id, given_back=None
    ).exclude(account__kind=AccountKind.CUSTOMER_AVAILABLE)
    asked = TransferReversal.objects.filter(
        dispute__top_up__owner_id=dispute.top_up.owner_id, provider_id=provider_id, state=ReversalState.REQUESTED
    )
    sums = [rows.aggregate(sum=Sum("amount"))["sum"] or 0 for rows in (same_customer, asked)]
    return int(sum(sums))


def _locked(names: Sequence[AccountName]) -> list[Account]:
    """The accounts as they are under their lock, in the order of the names."""
    present = Account.objects.in_bulk([name.id for name in names])
    return [present[name.id] for name in names]


def _ask_transfers_back(dispute: CardDispute, need: int, room: dict[UUID, int]) -> None:
    """Of what went out to these providers through Stripe since; the newest first, whole cents, once a transfer."""
    since = dispute.top_up.credited_at
    payouts = Payout.objects.filter(
        provider_id__in=list(room), rail=STRIPE_RAIL, state=PayoutState.CONFIRMED, created_at__gte=since
    ).exclude(external_id="")
    for payout in payouts.order_by("-created_at", "pk")[:REVERSALS_MAX]:
        amount = min(need, room[payout.provider_id], int(payout.amount)) // MICROS_PER_CENT * MICROS_PER_CENT
        if amount <= 0:
            continue
        reversal, is_new = TransferReversal.objects.get_or_create(
            dispute=dispute,
            stripe_transfer_id=payout.external_id,
            defaults={"provider_id": payout.provider_id, "amount": amount},
        )
        if is_new:
            record_birth(reversal)
            outbox.enqueue(REVERSAL_CALL, f"reversal:{reversal.pk}", {"reversal_id": str(reversal.pk)})
            need, room[payout.provider_id] = need - amount, room[payout.provider_id] - amount
