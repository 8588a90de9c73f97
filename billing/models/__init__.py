"""Everything that billing keeps, by subject: the ledger, the holds, the usage, payouts, and each part of the world."""

from billing.models.alerts import Alert
from billing.models.chain import ChainBlock, ChainEvent, ChainTransaction, EscrowContract, Signer
from billing.models.escrow import EscrowHold, EscrowLease, PayoutEntry, PayoutRoot
from billing.models.fiat import StripeEvent
from billing.models.holding import Deposit, Hold, Settlement, SettlementShare
from billing.models.ledger import Account, Asset, DailyRoot, Transfer
from billing.models.payouts import Payout
from billing.models.prices import TokenPrice
from billing.models.usage import ReceiptEvidence, UsageReceipt

__all__ = [
    "Account",
    "Alert",
    "Asset",
    "ChainBlock",
    "ChainEvent",
    "ChainTransaction",
    "DailyRoot",
    "Deposit",
    "EscrowContract",
    "EscrowHold",
    "EscrowLease",
    "Hold",
    "Payout",
    "PayoutEntry",
    "PayoutRoot",
    "ReceiptEvidence",
    "Settlement",
    "SettlementShare",
    "Signer",
    "StripeEvent",
    "TokenPrice",
    "Transfer",
    "UsageReceipt",
]
