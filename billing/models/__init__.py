"""Everything that billing keeps, by subject: the ledger, the holds, the usage, payouts, and each part of the world."""

from billing.models.chain import ChainBlock, ChainEvent, ChainTransaction
from billing.models.fiat import StripeEvent
from billing.models.holding import Deposit, Hold, Settlement, SettlementShare
from billing.models.ledger import Account, Asset, DailyRoot, Transfer
from billing.models.payouts import FakeMovement, Payout, PayoutSettings, ReserveSlice
from billing.models.reconciliation import Difference, PayoutBreaker, Position, Reconciliation
from billing.models.usage import ReceiptEvidence, UsageReceipt

__all__ = [
    "Account",
    "Asset",
    "ChainBlock",
    "ChainEvent",
    "ChainTransaction",
    "DailyRoot",
    "Deposit",
    "Difference",
    "FakeMovement",
    "Hold",
    "Payout",
    "PayoutBreaker",
    "PayoutSettings",
    "Position",
    "ReceiptEvidence",
    "Reconciliation",
    "ReserveSlice",
    "Settlement",
    "SettlementShare",
    "StripeEvent",
    "Transfer",
    "UsageReceipt",
]
