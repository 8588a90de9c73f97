"""Customers pay for what they keep in the artifact store: from their balance to the platform, never as a debt."""

from __future__ import annotations

from uuid import UUID

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.transfer_codes import TransferCode


def pay_for_storage(*, payer_id: UUID, amount: int, charge_id: UUID) -> None:
    """Move `amount` micro-USD, in the group of the charge. Given credit is for jobs, and stays what it is.

    In the caller's transaction, which writes down that it was paid: so it happens once. Raises InsufficientFunds,
    AccountFrozen.
    """
    names = [AccountName(AccountKind.CUSTOMER_AVAILABLE, payer_id), AccountName(AccountKind.FEE_REVENUE)]
    balance, revenue = open_accounts(names)
    new = ledger.NewTransfer(balance, revenue, amount, TransferCode.STORAGE, external_ref=f"storage:{charge_id}")
    ledger.post([new], group_id=charge_id)
