"""The only entry point by which money moves: `post`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import connection, transaction

from billing import functions
from billing.account_kinds import AccountKind
from billing.books.balances import AssetTotals, asset_totals, balance, balances_by_kind, trial_balance
from billing.books.verify import VerifyReport, verify
from billing.errors import AccountFrozen, BillingError, InsufficientFunds, TransferRefused
from billing.fields import AMOUNT_MAX
from billing.functions import array, stored
from billing.models import Account, Transfer
from billing.transfer_codes import TransferCode, TransferMode
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
    "post_from_frozen",
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
    """Post all of these or none; no owner's account ever falls below zero.

    The rows of the accounts are locked in the order of their ids, so that two posts never wait for each other. A verb
    that fails as a whole when this does needs no savepoint. Raises InsufficientFunds, AccountFrozen, TransferRefused.
    """
    if not transfers:
        return []
    for new in transfers:
        _check_shape(new)
    if len(transfers) > TRANSFERS_PER_POST_MAX:
        raise TransferRefused(why=f"at most {TRANSFERS_PER_POST_MAX} transfers go into one group")
    group_id, now = group_id or new_id(), clock.now()
    accounts = {account.pk: account for new in transfers for account in (new.debit, new.credit)}
    place = {account_id: number for number, account_id in enumerate(accounts, start=1)}
    ids = [new_id() for _ in transfers]
    # One statement is all or nothing by itself; inside of a transaction it is one only behind a savepoint.
    with transaction.atomic() if savepoint and connection.in_atomic_block else nullcontext():
        refused, account_id, available, needed, seqs = functions.call(
            "billing_post_transfers",
            group_id,
            now,
            array(accounts),
            array(ids),
            array(place[new.debit.pk] for new in transfers),
            array(place[new.credit.pk] for new in transfers),
            array(new.debit.asset_id for new in transfers),
            array(new.amount for new in transfers),
            array(new.mode.value for new in transfers),
            array(new.pending_id for new in transfers),
            array(new.code.value for new in transfers),
            array(new.job_id for new in transfers),
            [new.external_ref for new in transfers],
            [new.effective_at for new in transfers],
        )
    if refused is not None:
        raise _refusal(refused, accounts[account_id], int(available), int(needed))
    return [
        _posted(new, transfer_id, seq, group_id, now)
        for new, transfer_id, seq in zip(transfers, ids, seqs, strict=True)
    ]


def post_from_frozen(account: Account, transfers: Sequence[NewTransfer], *, group_id: UUID) -> list[Transfer]:
    """Post what leaves one account though it may be frozen; it is as frozen afterwards as it was before.

    For what the freeze keeps the money in for, and for what only passed through. In the caller's transaction, which
    holds the account's lock and read it under that.
    """
    same = Account.objects.filter(pk=account.pk)
    is_frozen = same.filter(is_frozen=True).update(is_frozen=False) == 1
    posted = post(transfers, group_id=group_id)
    if is_frozen:
        same.update(is_frozen=True)
    return posted


def _check_shape(new: NewTransfer) -> None:
    """Refuse what is wrong by itself, whatever the accounts hold."""
    if not isinstance(new.amount, int) or isinstance(new.amount, bool):
        raise TransferRefused(why=f"an amount is a whole number of base units, not {new.amount!r}")
    if new.amount <= 0:
        raise TransferRefused(why=f"an amount must be above zero, not {new.amount}")
    if new.amount > AMOUNT_MAX:
        raise TransferRefused(why="an amount is at most 2**256 - 1 base units")
    if new.debit.pk == new.credit.pk:
        raise TransferRefused(why="both legs are the same account")
    if new.debit.asset_id != new.credit.asset_id:
        raise TransferRefused(why="its two legs are of different assets")


def _refusal(refused: str, account: Account, available: int, needed: int) -> BillingError:
    if refused == "frozen":
        return AccountFrozen(account=str(account))
    if refused == "full":
        return TransferRefused(why=f"the account {account} would hold more than 2**256 - 1 base units")
    asset = account.asset
    return InsufficientFunds(
        account=account.kind, available=available, needed=needed, code=asset.code, scale=asset.scale
    )


def _posted(new: NewTransfer, transfer_id: UUID, seq: int, group_id: UUID, now: datetime) -> Transfer:
    """The row as the database has it now."""
    row: Transfer = stored(
        Transfer(
            id=transfer_id,
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
            seq=seq,
        )
    )
    return row
