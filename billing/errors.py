"""Everything that billing refuses, by name.

BillingError
|-- AmountInvalid             400  not a whole, positive amount
|-- InsufficientFunds         402  has the missing amount
|-- AccountFrozen             409  an operator froze the account
|-- TransferRefused           409  the ledger's own rules forbid it
|-- QuoteConflict             409  the quote was used for another exchange
|-- DepositConflict           409  the reference was used for another deposit
|-- HoldNotFound              404  nothing was set aside for the job
|-- HoldConflict              409  another hold is open for the job
|-- ChargeAboveHold           409  a job may never cost more than its hold
|-- AlreadySettled            409  the job's money is final
|-- ChargesInvalid            400  a lease twice, or a negative charge
|-- AmountTooLarge            400  beyond 256 bits
|-- AssetUnknown              404
|-- PriceUnavailable          503  no price of the token that is new enough
|-- AlertNotFound             404
|-- DisputeNotFound           404
|-- DisputeInvalid            400  no text, or attachments that are none
|-- NothingToDispute          409  no such lease, its window is over, or it was contested before
|-- SplitInvalid              400  the parts are not what is frozen
|-- OffenceUnknown            400  the table of penalties has no such reason
|-- PromotionConflict         409  the reference was used for another gift
|-- PromoCodeRefused          409  unknown, over, used up, used before
|-- SpendLimitReached         402  has the limit, what is used and left, and when it starts again
|-- InvoiceNotFound           404
|-- CorrectionRefused         409  no such difference now, or not by these people
|-- PayoutsStopped            503  reconciliation found a difference that nobody explained yet
|-- SolvencyReportNotFound    404  none of that number, or its proofs are no longer kept
|-- SolvencyUnprovable        409  what the accounts hold makes no tree: nothing is published
`-- ReceiptRefused            409  (the newest accepted receipt is in details.seq)
    |-- ReceiptForeign             of another job, lease, party or asset
    |-- ReceiptSignatureInvalid    not signed by the lease's receipt key
    |-- ReceiptGap                 one before it is missing
    |-- ReceiptChainBroken         does not point to the one before it
    |-- ReceiptNotMonotone         less use than the one before it
    |-- ReceiptAmountWrong         not the rate times the milliseconds
    |-- ReceiptAboveCap            more than the lease may ever bill
    |-- ReceiptAboveObserved       more than the server saw, plus one heartbeat
    `-- Equivocation               two different receipts with one sequence; both are kept as evidence
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from billing.money import USD_SCALE, format_amount
from marketplace.foundation.errors import SoukError


class BillingError(SoukError):
    message = "Money could not be moved."
    code = "billing_error"
    status = 409


class AmountInvalid(BillingError):
    message = "{value} is not an amount: give dollars such as 2.50, or a whole number of micro-USD above zero."
    code = "amount_invalid"
    status = 400


class InsufficientFunds(BillingError):
    message = "{missing} more is needed: this takes {needed}, and {available} is there."
    code = "insufficient_funds"
    status = 402

    def __init__(self, *, account: str, available: int, needed: int, code: str = "USD", scale: int = USD_SCALE) -> None:
        """`available` and `needed` in base units of the asset with this code and scale."""
        self.available, self.needed, self.missing = available, needed, needed - available
        super().__init__(
            account=account,
            asset=code,
            missing=format_amount(self.missing, code=code, scale=scale),
            needed=format_amount(needed, code=code, scale=scale),
            available=format_amount(available, code=code, scale=scale),
            available_units=str(available),
            needed_units=str(needed),
            missing_units=str(self.missing),
        )


class AccountFrozen(BillingError):
    message = "The account {account} is frozen: it takes money in and gives none out. Ask the operator."
    code = "account_frozen"


class TransferRefused(BillingError):
    message = "The ledger refuses this transfer: {why}."
    code = "transfer_refused"


class DepositConflict(BillingError):
    message = "The reference {reference} was used for another deposit. A deposit needs a reference of its own."
    code = "deposit_conflict"


class QuoteConflict(BillingError):
    message = "The quote {quote} was used for another exchange. A quote is used once."
    code = "quote_conflict"


class HoldNotFound(BillingError):
    message = "Nothing is set aside for job {job_id}."
    code = "hold_not_found"
    status = 404


class HoldConflict(BillingError):
    message = "Another hold is open for job {job_id}, of {held} base units."
    code = "hold_conflict"


class ChargeAboveHold(BillingError):
    message = "Job {job_id} would cost {charged} base units, and only {held} are set aside for it."
    code = "charge_above_hold"


class AlreadySettled(BillingError):
    message = "Job {job_id} is settled: its money is final."
    code = "already_settled"


class ChargesInvalid(BillingError):
    message = "The charges of job {job_id} make no sense: {why}."
    code = "charges_invalid"
    status = 400


class AmountTooLarge(BillingError):
    message = "An amount has at most 256 bits; this one has more."
    code = "amount_too_large"
    status = 400


class AssetUnknown(BillingError):
    message = "There is no asset {asset}."
    code = "asset_unknown"
    status = 404


class PriceUnavailable(BillingError):
    message = "There is no price of {asset} to reckon with: {why}. Try again in a minute, or pay in dollars."
    code = "price_unavailable"
    status = 503


class DisputeNotFound(BillingError):
    message = "There is no dispute {dispute_id} of yours."
    code = "dispute_not_found"
    status = 404


class DisputeInvalid(BillingError):
    message = "This cannot be filed: {why}."
    code = "dispute_invalid"
    status = 400


class NothingToDispute(BillingError):
    message = "There is nothing to contest: {why}."
    code = "nothing_to_dispute"


class SplitInvalid(BillingError):
    message = "The parts add up to {sum} base units, and {amount} are frozen. Each part is 0 or more."
    code = "split_invalid"
    status = 400


class OffenceUnknown(BillingError):
    message = "The table of penalties has no {reason}."
    code = "offence_unknown"
    status = 400


class PromotionConflict(BillingError):
    message = "The reference {reference} was used for another gift."
    code = "promotion_conflict"


class PromoCodeRefused(BillingError):
    message = "This code gives nothing: {why}."
    code = "promo_code_refused"


class SpendLimitReached(BillingError):
    message = (
        "The {whose}'s limit of {limit} a {period} is reached: {used} is used, {left} left, {needed} needed{resets}."
    )
    code = "spend_limit_reached"
    status = 402


class InvoiceNotFound(BillingError):
    message = "There is no invoice {invoice_id} of yours."
    code = "invoice_not_found"
    status = 404


class PayoutsStopped(BillingError):
    message = "Payouts are stopped since {since}: the books do not agree with the outside, and an operator is looking."
    code = "payouts_stopped"
    status = 503


class SolvencyReportNotFound(BillingError):
    message = "There is no such solvency report: {why}."
    code = "solvency_report_not_found"
    status = 404


class SolvencyUnprovable(BillingError):
    message = "No solvency report can be sealed: {why}."
    code = "solvency_unprovable"


class AlertNotFound(BillingError):
    message = "There is no alert {alert_id}."
    code = "alert_not_found"
    status = 404


class ReceiptRefused(BillingError):
    message = "Receipt {refused_seq} of lease {lease_id} is refused."
    code = "receipt_refused"

    def __init__(self, lease_id: UUID, refused_seq: int, **details: Any) -> None:
        self.seq = 0  # the newest accepted one; accept_receipts fills it in
        super().__init__(lease_id=str(lease_id), refused_seq=refused_seq, **details)


class ReceiptForeign(ReceiptRefused):
    message = "Receipt {refused_seq} of lease {lease_id} is refused: its {field} is not the lease's."
    code = "receipt_foreign"


class ReceiptSignatureInvalid(ReceiptRefused):
    message = "Receipt {refused_seq} of lease {lease_id} is refused: it is not signed by the lease's receipt key."
    code = "receipt_signature_invalid"


class ReceiptGap(ReceiptRefused):
    message = "Receipt {refused_seq} of lease {lease_id} is refused: {expected_seq} has to come first."
    code = "receipt_gap"


class ReceiptChainBroken(ReceiptRefused):
    message = "Receipt {refused_seq} of lease {lease_id} is refused: it does not point to the one before it."
    code = "receipt_chain_broken"


class ReceiptNotMonotone(ReceiptRefused):
    message = "Receipt {refused_seq} of lease {lease_id} is refused: it states less use than the one before it."
    code = "receipt_not_monotone"


class ReceiptAmountWrong(ReceiptRefused):
    message = "Receipt {refused_seq} of lease {lease_id} is refused: its amount should be {expected}."
    code = "receipt_amount_wrong"


class ReceiptAboveCap(ReceiptRefused):
    message = "Receipt {refused_seq} of lease {lease_id} is refused: the lease may bill {cap} at most."
    code = "receipt_above_cap"


class ReceiptAboveObserved(ReceiptRefused):
    message = "Receipt {refused_seq} of lease {lease_id} is refused: {billable_ms} ms claimed, {observed_ms} observed."
    code = "receipt_above_observed"


class Equivocation(ReceiptRefused):
    message = "Lease {lease_id} has two different receipts {refused_seq}; both are kept as evidence."
    code = "equivocation"


class CorrectionRefused(BillingError):
    message = "The ledger is not corrected: {why}."
    code = "correction_refused"
    status = 409
