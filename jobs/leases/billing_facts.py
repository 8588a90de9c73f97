"""What billing keeps of a lease that ended, so that whoever contests it has facts to contest."""

from __future__ import annotations

from billing.charging.endings import Ending, record_end
from jobs.models import Lease
from provider_agent.protocol import REASONS, Reason


def keep(lease: Lease, *, reason: str, checkpointed_ms: int) -> None:
    """Hand billing the facts of a lease whose price was just frozen, in the same transaction."""
    attempt = lease.attempt
    record_end(
        Ending(
            lease_id=lease.id,
            job_id=attempt.job_id,
            attempt=attempt.number,
            node_id=lease.node_id,
            customer_id=attempt.job.organisation_id,
            provider_id=lease.node.provider.organisation_id,
            reason=str(reason),
            fault=attempt.fault if lease.replaced_at is None else REASONS[Reason(lease.reported_reason)].fault.value,
            message=attempt.message,
            reported_reason=lease.reported_reason,
            exit_code=lease.exit_code,
            observed_ms=lease.observed_ms,
            checkpointed_ms=checkpointed_ms,
            billable_ms=lease.billable_ms or 0,
            asset_id=lease.asset_id,
            rate=lease.rate_units_per_hour,
            charged=lease.charge_units or 0,
            last_seen_at=lease.observed_until,
        )
    )
