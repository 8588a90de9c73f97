"""The tables of money, by subject.

alerts.py          alerts to operators
chain.py           blocks, events, contracts, our transactions
corrections.py     corrections of the ledger, by two people
disputes.py        how leases ended, disputes, offences
escrow.py          what the escrow contract owes: roots, holds, leases, keys
fiat.py            events and bookings of Stripe; customers, cards, accounts
holding.py         deposits, holds, settlements, shares
invoices.py        invoices and billing details
ledger.py          assets, accounts, transfers, daily roots
limits.py          spend limits and commitments
payouts.py         payouts, their way to the bank, settings, reserves
prices.py          prices of tokens
promotions.py      given credit and its codes
reconciliation.py  reports of reconciliations, the breaker
solvency.py        published reports and their trees
stakes.py          what offences take of stakes
topups.py          top-ups, refunds, card disputes, warnings of fraud, recoveries
usage.py           receipts, and evidence of contradicting ones
"""

from billing.models.alerts import Alert
from billing.models.chain import ChainBlock, ChainEvent, ChainTransaction, EscrowContract, Signer
from billing.models.corrections import LedgerCorrection
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
from billing.models.payouts import BankLeg, FakeMovement, Payout, PayoutSettings, ReserveSlice
from billing.models.prices import TokenPrice
from billing.models.promotions import PromoCode, PromotionDraw, PromotionGrant
from billing.models.reconciliation import Difference, PayoutBreaker, Position, Reconciliation
from billing.models.solvency import SolvencyChunk, SolvencyReport
from billing.models.stakes import StakeSlash
from billing.models.topups import (
    AutoTopUp,
    CardDispute,
    ChargebackRecovery,
    FraudWarning,
    TopUp,
    TopUpRefund,
    TransferReversal,
)
from billing.models.usage import ReceiptEvidence, UsageReceipt

__all__ = [
    "Account",
    "Alert",
    "Asset",
    "AutoTopUp",
    "BankLeg",
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
    "FraudWarning",
    "Hold",
    "Invoice",
    "InvoiceCounter",
    "LedgerCorrection",
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
