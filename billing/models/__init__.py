"""Everything that billing keeps, by subject: the ledger, the holds, the usage, payouts, and each part of the world."""

from billing.models.chain import ChainBlock, ChainEvent, ChainTransaction
from billing.models.fiat import ConnectAccount, SavedCard, StripeBooking, StripeCursor, StripeCustomer, StripeEvent
from billing.models.holding import Deposit, Hold, Settlement, SettlementShare
from billing.models.ledger import Account, Asset, DailyRoot, Transfer
from billing.models.payouts import Payout
from billing.models.topups import AutoTopUp, CardDispute, ChargebackRecovery, TopUp, TopUpRefund, TransferReversal
from billing.models.usage import ReceiptEvidence, UsageReceipt

__all__ = [
    "Account",
    "Asset",
    "AutoTopUp",
    "CardDispute",
    "ChainBlock",
    "ChainEvent",
    "ChainTransaction",
    "ChargebackRecovery",
    "ConnectAccount",
    "DailyRoot",
    "Deposit",
    "Hold",
    "Payout",
    "ReceiptEvidence",
    "SavedCard",
    "Settlement",
    "SettlementShare",
    "StripeBooking",
    "StripeCursor",
    "StripeCustomer",
    "StripeEvent",
    "TopUp",
    "TopUpRefund",
    "Transfer",
    "TransferReversal",
    "UsageReceipt",
]
