"""Who pays for a chargeback: the customer, then reserves, then balances of those they paid, then the platform."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Sum

from billing import holds, ledger
from billing.chart import AccountName, open_accounts
from billing.fiat import booking
from billing.fiat.states import DisputeState, ReversalState
from billing.kinds import AccountKind, TransferCode
from billing.models import (
    Account,
    CardDispute,
    ChargebackRecovery,
    Hold,
    Payout,
    SettlementShare,
    TopUp,
    TransferReversal,
)
from billing.money import MICROS_PER_CENT
from billing.rails.stripe_records import Booking
from billing.states import PayoutState
from marketplace.foundation import outbox
from marketplace.foundation.states import advance, record_birth

REVERSAL_CALL: Final = "stripe.reversal"
PROVIDERS_MAX: Final = 200  # of one dispute; those who were paid most come first
REVERSALS_MAX: Final = 200
STRIPE_RAIL: Final = "stripe"
LOSS: Final = AccountName(AccountKind.CHARGEBACK_LOSS)
RECOVERED: Final = (DisputeState.OPEN, DisputeState.LOST)  # in these states it is taken from somebody


def recover(dispute: CardDispute) -> int:
    """Take what can be had, in the order of the design; a repeat takes what came since. What it took, in micro-USD.

    The caller holds the dispute's row.
    """
    owner_id = dispute.top_up.owner_id
    shares = _paid_to_providers(dispute)
    customer = AccountName(AccountKind.CUSTOMER_AVAILABLE, owner_id)
    of_providers = [
        AccountName(kind, provider_id)
        for kind in (AccountKind.PROVIDER_RESERVE, AccountKind.PROVIDER_AVAILABLE)
        for provider_id in shares
    ]
    names = [customer, *of_providers]
    booking.lock(LOSS, *names)
    need = missing(dispute)
    room = {provider_id: paid - _taken_from(dispute, provider_id) for provider_id, paid in shares.items()}
    taken = 0
    for account in _locked(names):
        is_customer = account.kind == AccountKind.CUSTOMER_AVAILABLE
        if account.is_frozen and not is_customer:
            continue  # the operator is looking at this provider
        owner = account.owner_id
        limit = need if is_customer or owner is None else min(need, room.get(owner, 0))
        amount = min(limit, account.available)
        if amount > 0:
            take(dispute, account, amount)
            need, taken = need - amount, taken + amount
            if owner in room:
                room[owner] -= amount
    if need > 0:
        _ask_transfers_back(dispute, need, room)
    return taken


def release_wait(top_up: TopUp, *, reason: str) -> None:
    """What was set aside because its payer is new was not spent: it is in the balance, to be taken."""
    if Hold.objects.open().filter(job_id=top_up.pk).exists():
        holds.release_hold(top_up.pk, reason=reason)


def missing(dispute: CardDispute) -> int:
    """What of the loss is neither recovered nor being asked back."""
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
    taken = dispute.recoveries.filter(given_back=None).select_related("account")
    for one in taken.select_for_update(of=("self",)).order_by("pk"):
        [loss] = open_accounts([LOSS])
        back = ledger.NewTransfer(
            loss, one.account, one.amount, TransferCode.CHARGEBACK_WON, external_ref=dispute.stripe_id
        )
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
        stripe, loss, provider = open_accounts(
            [booking.PLATFORM, LOSS, AccountName(AccountKind.PROVIDER_AVAILABLE, reversal.provider_id)]
        )
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
    """Stripe cannot take it back: the platform bears it."""
    reversal = TransferReversal.objects.get(pk=reversal_id)
    if reversal.state != ReversalState.REQUESTED:
        return reversal
    return advance(reversal, ReversalState.REFUSED, actor="stripe", message=message)


def _paid_to_providers(dispute: CardDispute) -> dict[UUID, int]:
    """What each provider earned from this customer after the top-up: no more than that is ever asked of them."""
    since = dispute.top_up.credited_at
    if since is None or not settings.SOUK_CHARGEBACK_PROVIDER_DAYS:
        return {}
    shares = SettlementShare.objects.filter(
        settlement__owner_id=dispute.top_up.owner_id,
        settlement__asset_id=booking.PLATFORM.asset_id,
        settlement__created_at__gte=since,
        settlement__created_at__lt=since + timedelta(days=settings.SOUK_CHARGEBACK_PROVIDER_DAYS),
    )
    sums = shares.values("provider_id").annotate(sum=Sum("paid")).order_by("-sum", "provider_id")[:PROVIDERS_MAX]
    return {row["provider_id"]: int(row["sum"]) for row in sums}


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
