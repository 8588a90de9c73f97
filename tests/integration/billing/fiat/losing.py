"""Jobs that were paid by a card whose payment is charged back, and what it costs whom."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.charging import holds, settlement
from billing.charging.settlement import LeaseCharge
from marketplace.foundation import clock
from tests.integration.billing.fiat.scenes import DOLLAR

FEE = 15 * DOLLAR


def run_job(customer: UUID, provider: UUID, usd_micros: int, *, released: bool = True) -> None:
    """The customer's job ends, and its provider can spend what it earned (nothing goes to the platform)."""
    job_id = uuid4()
    holds.place_hold(owner_id=customer, job_id=job_id, amount=usd_micros)
    settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), provider, usd_micros)], fee_bps=0)
    if released:
        settlement.release_pending(clock.now() + timedelta(days=400))


def loss() -> int:
    return -ledger.balance(None, AccountKind.CHARGEBACK_LOSS)


def earned(provider: UUID) -> int:
    return ledger.balance(provider, AccountKind.PROVIDER_AVAILABLE)
