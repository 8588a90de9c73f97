"""Payouts that have arrived: what was set aside is gone, the mirror follows, and earlier failures are forgotten.

One payout or many, as one transaction of the caller's; each has a group of transfers of its own, named by its id.
"""

from __future__ import annotations

from collections.abc import Sequence

from billing.account_kinds import OWNED_KINDS, AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, lock_accounts, open_accounts
from billing.models import Account, Payout, PayoutSettings
from billing.notices import alerts
from billing.rails import registry
from billing.rails.payouts import Outcome
from billing.states import PayoutState
from billing.transfer_codes import TransferCode, TransferMode
from marketplace.foundation import clock
from marketplace.foundation.states import advance_all


def confirm(payouts: Sequence[Payout], outcomes: Sequence[Outcome], *, actor: str) -> None:
    """Book what these submitted payouts moved; `outcomes` in their order. The caller holds their rows.

    What is locked here is locked in the order of everybody who pays: settings, then accounts, each by their ids.
    """
    if not payouts:
        return
    for payout, outcome in zip(payouts, outcomes, strict=True):
        payout.cost = outcome.cost if registry.row_of(payout.rail).moves_mirror else 0
    Payout.objects.bulk_update(payouts, ["cost"])
    _forget_failures(payouts)
    names = [name for payout in payouts for name in _names(payout)]
    accounts = dict(zip(names, open_accounts(names), strict=True))
    if len(payouts) > 1:
        lock_accounts({account.pk for account in accounts.values() if account.is_summed})
    for payout, outcome in zip(payouts, outcomes, strict=True):
        group = _transfers(payout, outcome, [accounts[name] for name in _names(payout)])
        ledger.post(group, group_id=payout.pk, savepoint=False)
    advance_all(
        payouts,
        PayoutState.CONFIRMED,
        reason="confirmed",
        actor=actor,
        data={payout.pk: {"external_id": payout.external_id} for payout in payouts},
        closed_at=clock.now(),
        last_error="",
    )
    alerts.close_all([key for payout in payouts for key in (failed_key(payout), stuck_key(payout))])


def name_of(payout: Payout, kind: AccountKind) -> AccountName:
    """The account of this kind that a payout touches: its provider's, or the marketplace's."""
    owner = payout.provider_id if kind in OWNED_KINDS else None
    return AccountName(kind, owner, asset_id=payout.asset_id)


def ref_of(payout: Payout) -> str:
    """What the payout's transfers are called by outside."""
    return payout.external_id or f"payout:{payout.pk}"


def failed_key(payout: Payout) -> str:
    """Of the alert that payouts of this provider fail."""
    return f"payout_failed:{payout.provider_id}:{payout.asset_id}"


def stuck_key(payout: Payout) -> str:
    """Of the alert that what became of this payout cannot be booked."""
    return f"payout_stuck:{payout.pk}"


def _forget_failures(payouts: Sequence[Payout]) -> None:
    owners = {(payout.provider_id, payout.asset_id) for payout in payouts}
    rows = PayoutSettings.objects.filter(
        provider_id__in={provider_id for provider_id, _ in owners}, asset_id__in={asset_id for _, asset_id in owners}
    )
    locked = [row for row in rows.order_by("pk").select_for_update() if (row.provider_id, row.asset_id) in owners]
    failed = [row.pk for row in locked if row.failures or row.last_error]
    if failed:
        PayoutSettings.objects.filter(pk__in=failed).update(failures=0, last_error="")


def _names(payout: Payout) -> list[AccountName]:
    book = registry.row_of(payout.rail)
    kinds = (AccountKind.PROVIDER_AVAILABLE, AccountKind.PAYOUT_CLEARING, book.mirror, book.cost)
    return [name_of(payout, kind) for kind in kinds]


def _transfers(payout: Payout, outcome: Outcome, accounts: Sequence[Account]) -> list[ledger.NewTransfer]:
    available, clearing, mirror, cost = accounts
    ref, code = ref_of(payout), TransferCode.PAYOUT
    group = [
        ledger.NewTransfer(
            available,
            clearing,
            payout.amount,
            code,
            mode=TransferMode.POST,
            pending_id=payout.pending_transfer_id,
            external_ref=ref,
        )
    ]
    if registry.row_of(payout.rail).moves_mirror:
        group.append(ledger.NewTransfer(clearing, mirror, payout.amount, code, external_ref=ref))
        if outcome.cost:
            group.append(ledger.NewTransfer(cost, mirror, outcome.cost, TransferCode.PAYOUT_COST, external_ref=ref))
    return group
