"""Alice bought from Bob; the job is settled, and its challenge window is open."""

from __future__ import annotations

from uuid import UUID, uuid4

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.charging import endings, holds, settlement
from billing.charging.endings import Ending
from billing.charging.settlement import LeaseCharge
from billing.models import EndRecord, SettlementShare
from marketplace.foundation import clock
from tests.integration.billing.scenes import DOLLAR

CHARGED = 1_234_567
FEE = 123_456
PAID = CHARGED - FEE


def settle(
    alice: UUID, bob: UUID, *, charged: int = CHARGED, lease_id: UUID | None = None, held: int = 4 * DOLLAR
) -> SettlementShare:
    job_id = uuid4()
    holds.place_hold(owner_id=alice, job_id=job_id, amount=held)
    charge = LeaseCharge(lease_id or uuid4(), bob, charged)
    return settlement.settle_job(job_id=job_id, charges=[charge], fee_bps=1000).shares.get()


def end(
    share: SettlementShare, reason: str = "node_quarantined", fault: str = "provider", claimed: int = 0
) -> EndRecord:
    made = endings.record_end(
        Ending(
            lease_id=share.lease_id,
            job_id=share.settlement.job_id,
            attempt=1,
            node_id=uuid4(),
            customer_id=share.settlement.owner_id,
            provider_id=share.provider_id,
            reason=reason,
            fault=fault,
            message="It broke.",
            reported_reason="",
            exit_code=None,
            observed_ms=5000,
            checkpointed_ms=3000,
            billable_ms=3000,
            asset_id=1,
            rate=3_600_000,
            charged=share.charged,
            last_seen_at=clock.now(),
        )
    )
    return made


def has(owner: UUID | None, kind: AccountKind) -> int:
    return ledger.balance(owner, kind)


def pending(owner: UUID) -> int:
    return has(owner, AccountKind.PROVIDER_PENDING)


def earned(owner: UUID) -> int:
    return has(owner, AccountKind.PROVIDER_AVAILABLE)


def fees() -> int:
    return has(None, AccountKind.FEE_REVENUE)


def frozen() -> int:
    return sum(row.balance for row in ledger.balances_by_kind() if row.kind == AccountKind.DISPUTED)
