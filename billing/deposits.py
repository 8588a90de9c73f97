"""Money that enters."""

from __future__ import annotations

from uuid import UUID

from django.db import IntegrityError, transaction

from billing import ledger
from billing.chart import AccountName, open_accounts
from billing.errors import AmountInvalid, DepositConflict
from billing.kinds import AccountKind, TransferCode
from billing.models import Deposit, Transfer

RAIL_OPERATOR = "operator"


def credit(owner_id: UUID, amount_usd_micros: int, *, reference: str, actor: str) -> Transfer:
    """Credit what an operator received outside of Souk; once per reference, a repeat returns the first transfer.

    Raises AmountInvalid, and DepositConflict when the reference was used for another owner or amount.
    """
    if amount_usd_micros <= 0:
        raise AmountInvalid(value=str(amount_usd_micros))
    if not reference.strip():
        raise DepositConflict("A deposit needs a reference: the bank's, or a note that is used once.")
    try:
        with transaction.atomic():
            return _credited(owner_id, amount_usd_micros, reference) or _credit(
                owner_id, amount_usd_micros, reference, actor
            )
    except IntegrityError:
        # Somebody credited the same reference between the look and the write: then theirs is the deposit.
        transfer = _credited(owner_id, amount_usd_micros, reference)
        if transfer is None:
            raise
        return transfer


def _credit(owner_id: UUID, amount: int, reference: str, actor: str) -> Transfer:
    cash, balance = open_accounts(
        [AccountName(AccountKind.OPERATOR_CASH), AccountName(AccountKind.CUSTOMER_AVAILABLE, owner_id)]
    )
    [transfer] = ledger.post(
        [ledger.NewTransfer(cash, balance, amount, TransferCode.DEPOSIT, external_ref=reference)], savepoint=False
    )
    Deposit.objects.create(
        owner_id=owner_id,
        amount_usd_micros=amount,
        rail=RAIL_OPERATOR,
        reference=reference,
        actor=actor,
        transfer=transfer,
    )
    return transfer


def _credited(owner_id: UUID, amount: int, reference: str) -> Transfer | None:
    deposit = Deposit.objects.select_related("transfer").filter(rail=RAIL_OPERATOR, reference=reference).first()
    if deposit is None:
        return None
    if (deposit.owner_id, deposit.amount_usd_micros) != (owner_id, amount):
        raise DepositConflict(reference=reference)
    return deposit.transfer
