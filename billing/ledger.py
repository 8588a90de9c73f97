"""The only door through which money moves: `post`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import transaction

from billing.balances import AssetTotals, asset_totals, balance, balances_by_kind, trial_balance
from billing.errors import AccountFrozen, InsufficientFunds, TransferRefused
from billing.kinds import AccountKind, TransferCode, TransferMode
from billing.models import Account, Transfer
from billing.verify import VerifyReport, verify
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id

TRANSFERS_PER_POST_MAX: Final = 10_000

__all__ = [
    "AccountKind",
    "AssetTotals",
    "NewTransfer",
    "VerifyReport",
    "asset_totals",
    "balance",
    "balances_by_kind",
    "post",
    "trial_balance",
    "verify",
]


@dataclass(frozen=True)
class NewTransfer:
    """`amount` base units go from `debit` to `credit`."""

    debit: Account
    credit: Account
    amount: int
    code: TransferCode
    job_id: UUID | None = None
    external_ref: str = ""
    mode: TransferMode = TransferMode.SINGLE
    pending_id: UUID | None = None
    effective_at: datetime | None = None


def post(transfers: Sequence[NewTransfer], *, group_id: UUID | None = None, savepoint: bool = True) -> list[Transfer]:
    """Post all of these or none; no account of somebody's money ever falls below zero.

    The rows of the accounts are locked in the order of their ids, so that two posts never wait for each other. A verb
    that fails as a whole when this does needs no savepoint. Raises InsufficientFunds, AccountFrozen, TransferRefused.
    """
    if not transfers:
        return []
    _check_shape(transfers)
    group_id = group_id or new_id()
    with transaction.atomic(savepoint=savepoint):
        locked = _lock_accounts(transfers)
        _check_funds(transfers, locked)
        now = clock.now()
        rows = [
            Transfer(
                group_id=group_id,
                asset_id=new.debit.asset_id,
                debit=new.debit,
                credit=new.credit,
                amount=new.amount,
                mode=new.mode,
                pending_id=new.pending_id,
                code=new.code,
                job_id=new.job_id,
                external_ref=new.external_ref,
                effective_at=new.effective_at or now,
                created_at=now,
            )
            for new in transfers
        ]
        return Transfer.objects.bulk_create(rows)  # one statement: the trigger sees, and checks, the group as a whole


def _check_shape(transfers: Sequence[NewTransfer]) -> None:
    if len(transfers) > TRANSFERS_PER_POST_MAX:
        raise TransferRefused(why=f"at most {TRANSFERS_PER_POST_MAX} transfers go into one group")
    for new in transfers:
        if new.amount <= 0:
            raise TransferRefused(why=f"an amount must be above zero, not {new.amount}")
        if new.debit.pk == new.credit.pk:
            raise TransferRefused(why="both legs are the same account")
        if new.debit.asset_id != new.credit.asset_id:
            raise TransferRefused(why="its two legs are of different assets")


def _lock_accounts(transfers: Sequence[NewTransfer]) -> dict[UUID, Account]:
    """Lock every account with a live sum, in one order for all; NO KEY, so that foreign-key checks do not wait."""
    ids = {account.pk for new in transfers for account in (new.debit, new.credit) if account.is_summed}
    rows = Account.objects.filter(pk__in=ids).order_by("pk").select_for_update(no_key=True)
    return {account.pk: account for account in rows}


def _check_funds(transfers: Sequence[NewTransfer], locked: dict[UUID, Account]) -> None:
    """Say what is missing, by name; the CHECK constraints say no to whatever this does not see."""
    change: dict[UUID, int] = defaultdict(int)
    for new in transfers:
        if new.mode in {TransferMode.SINGLE, TransferMode.PENDING}:
            change[new.debit.pk] -= new.amount
            debited = locked.get(new.debit.pk)
            if debited is not None and debited.is_frozen:
                raise AccountFrozen(account=str(debited))
        if new.mode in {TransferMode.SINGLE, TransferMode.POST}:
            change[new.credit.pk] += new.amount
    for account_id, account in locked.items():
        if account.is_nonnegative and account.available + change[account_id] < 0:
            asset = account.asset
            raise InsufficientFunds(
                account=account.kind,
                available=account.available,
                needed=-change[account_id],
                code=asset.code,
                scale=asset.scale,
            )
