"""Credits money that arrived by a rail: once, whoever reports it first and however often."""

from __future__ import annotations

from billing.books import deposits
from billing.models import Transfer
from billing.rails import registry
from billing.rails.payments_in import PaymentRail, Receipt


def credit(rail: PaymentRail, receipt: Receipt, *, at_most: int | None = None) -> Transfer:
    """Credit a receipt to its owner, no more than `at_most`; a repeat returns the first transfer.

    Raises AmountInvalid, and DepositConflict where the reference was used for another owner, asset or amount.
    """
    amount = receipt.amount if at_most is None else min(receipt.amount, at_most)
    return deposits.credit(
        receipt.owner_id,
        amount,
        reference=receipt.reference,
        actor=receipt.payer,
        source=registry.source_of(rail.name),
        asset_id=receipt.asset_id,
    )
