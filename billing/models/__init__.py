"""Everything that billing keeps, by subject: the ledger, the holds, the usage, the outside world."""

from billing.models.holding import Deposit, Hold, Payout, Settlement, SettlementShare
from billing.models.ledger import Account, Asset, DailyRoot, Transfer
from billing.models.outside import ChainBlock, ChainEvent, ChainTransaction, StripeEvent
from billing.models.usage import ReceiptEvidence, UsageReceipt

__all__ = [
    "Account",
    "Asset",
    "ChainBlock",
    "ChainEvent",
    "ChainTransaction",
    "DailyRoot",
    "Deposit",
    "Hold",
    "Payout",
    "ReceiptEvidence",
    "Settlement",
    "SettlementShare",
    "StripeEvent",
    "Transfer",
    "UsageReceipt",
]
