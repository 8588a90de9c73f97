"""Money that enters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import IntegrityError, transaction

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.errors import AmountInvalid, DepositConflict
from billing.fields import is_amount
from billing.models import Deposit, Transfer
from billing.models.ledger import USD_ASSET_ID
from billing.money import AMOUNT_CHARACTERS_MAX
from billing.transfer_codes import TransferCode


@dataclass(frozen=True)
class Source:
    """Where a deposit came from: the rail's name, and the account that mirrors the world behind it."""

    rail: str
    mirror: AccountKind


OPERATOR: Final = Source("operator", AccountKind.OPERATOR_CASH)
RAIL_OPERATOR: Final = OPERATOR.rail


def credit(
    owner_id: UUID,
    amount: int,
    *,
    reference: str,
    actor: str,
    source: Source = OPERATOR,
    asset_id: int = USD_ASSET_ID,
) -> Transfer:
    """Credit what was received; once per rail and reference, a repeat returns the first transfer.

    Raises AmountInvalid, and DepositConflict when the reference was used for another owner, asset or amount.
    """
    if not is_amount(amount):
        raise AmountInvalid(value=str(amount)[:AMOUNT_CHARACTERS_MAX])
    if not reference.strip():
        raise DepositConflict("A deposit needs a reference: the bank's, or a note that is used once.")
    deposit = Deposit(
        owner_id=owner_id, asset_id=asset_id, amount=amount, rail=source.rail, reference=reference, actor=actor
    )
    try:
        with transaction.atomic():
            return _credited(deposit) or _credit(deposit, source)
    except IntegrityError:
        # Another process credited the same reference between our read and our write: its deposit counts.
        transfer = _credited(deposit)
        if transfer is None:
            raise
        return transfer


def _credit(deposit: Deposit, source: Source) -> Transfer:
    mirror, balance = open_accounts(
        [
            AccountName(source.mirror, asset_id=deposit.asset_id),
            AccountName(AccountKind.CUSTOMER_AVAILABLE, deposit.owner_id, asset_id=deposit.asset_id),
        ]
    )
    new = ledger.NewTransfer(mirror, balance, deposit.amount, TransferCode.DEPOSIT, external_ref=deposit.reference)
    [deposit.transfer] = ledger.post([new], savepoint=False)
    deposit.save(force_insert=True)
    return deposit.transfer


def _credited(deposit: Deposit) -> Transfer | None:
    """The transfer of an earlier deposit with this one's reference; the same deposit, or none."""
    found = Deposit.objects.select_related("transfer").filter(rail=deposit.rail, reference=deposit.reference).first()
    if found is None:
        return None
    if (found.owner_id, found.asset_id, found.amount) != (deposit.owner_id, deposit.asset_id, deposit.amount):
        raise DepositConflict(reference=deposit.reference)
    return found.transfer
