"""Callers pay endpoints of other organisations for tokens: from their balance to the owner's earnings, less the fee."""

from __future__ import annotations

from uuid import UUID

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.charging.fees import split_fee
from billing.transfer_codes import TransferCode


def pay_for_tokens(*, payer_id: UUID, owner_id: UUID, amount: int, fee_bps: int, payment_id: UUID) -> tuple[int, int]:
    """Move `amount` micro-USD: (fee, what the owner got), which add up to it. All in one group, the payment's.

    In the caller's transaction, which writes down that it was paid: so it happens once. Raises InsufficientFunds,
    AccountFrozen.
    """
    fee, paid = split_fee(amount, fee_bps)
    balance, earned, revenue = open_accounts(
        [
            AccountName(AccountKind.CUSTOMER_AVAILABLE, payer_id),
            AccountName(AccountKind.PROVIDER_AVAILABLE, owner_id),
            AccountName(AccountKind.FEE_REVENUE),
        ]
    )
    parts = [(earned, paid, TransferCode.USAGE_PAY), (revenue, fee, TransferCode.PLATFORM_FEE)]
    ledger.post(
        [
            ledger.NewTransfer(balance, credit, part, code, external_ref=f"tokens:{payment_id}")
            for credit, part, code in parts
            if part
        ],
        group_id=payment_id,
    )
    return fee, paid
