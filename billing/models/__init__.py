"""Everything that billing keeps, by subject: the ledger, the holds, the usage, payouts, and each part of the world."""

from billing.models.alerts import Alert
from billing.models.chain import ChainBlock, ChainEvent, ChainTransaction, EscrowContract, Signer
from billing.models.disputes import Dispute, EndRecord, Offence, OffenceTaking
from billing.models.escrow import (
    ContractTerms,
    EscrowClaim,
    EscrowHold,
    EscrowLease,
    PayoutEntry,
    PayoutRoot,
    ReceiptKey,
)
from billing.models.fiat import ConnectAccount, SavedCard, StripeBooking, StripeCursor, StripeCustomer, StripeEvent
from billing.models.holding import Deposit, Hold, Settlement, SettlementShare
from billing.models.invoices import BillingDetails, Invoice, InvoiceCounter
from billing.models.ledger import Account, Asset, DailyRoot, Transfer
from billing.models.limits import Commitment, SpendLimit
from billing.models.payouts import FakeMovement, Payout, PayoutSettings, ReserveSlice
from billing.models.prices import TokenPrice
from billing.models.promotions import PromoCode, PromotionDraw, PromotionGrant
from billing.models.reconciliation import Difference, PayoutBreaker, Position, Reconciliation
from billing.models.solvency import SolvencyChunk, SolvencyReport
from billing.models.stakes import StakeSlash
from billing.models.topups import AutoTopUp, CardDispute, ChargebackRecovery, TopUp, TopUpRefund, TransferReversal
from billing.models.usage import ReceiptEvidence, UsageReceipt

__all__ = [
    "Account",
    "Alert",
    "Asset",
    "AutoTopUp",
    "BillingDetails",
    "CardDispute",
    "ChainBlock",
    "ChainEvent",
    "ChainTransaction",
    "ChargebackRecovery",
    "Commitment",
    "ConnectAccount",
    "ContractTerms",
    "DailyRoot",
    "Deposit",
    "Difference",
    "Dispute",
    "EndRecord",
    "EscrowClaim",
    "EscrowContract",
    "EscrowHold",
    "EscrowLease",
    "FakeMovement",
    "Hold",
    "Invoice",
    "InvoiceCounter",
    "Offence",
    "OffenceTaking",
    "Payout",
    "PayoutBreaker",
    "PayoutEntry",
    "PayoutRoot",
    "PayoutSettings",
    "Position",
    "PromoCode",
    "PromotionDraw",
    "PromotionGrant",
    "ReceiptEvidence",
    "ReceiptKey",
    "Reconciliation",
    "ReserveSlice",
    "SavedCard",
    "Settlement",
    "SettlementShare",
    "Signer",
    "SolvencyChunk",
    "SolvencyReport",
    "SpendLimit",
    "StakeSlash",
    "StripeBooking",
    "StripeCursor",
    "StripeCustomer",
    "StripeEvent",
    "TokenPrice",
    "TopUp",
    "TopUpRefund",
    "Transfer",
    "TransferReversal",
    "UsageReceipt",
]
