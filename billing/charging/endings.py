"""The facts of an ending, kept while they are known."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from billing.charging import metering
from billing.models import EndRecord
from marketplace.foundation import clock


@dataclass(frozen=True)
class Ending:
    """What the conductor knows of a lease that ends now; amounts in base units of what the job is paid in."""

    lease_id: UUID
    job_id: UUID
    attempt: int
    node_id: UUID
    customer_id: UUID
    provider_id: UUID
    reason: str
    fault: str
    message: str
    reported_reason: str
    exit_code: int | None
    observed_ms: int
    checkpointed_ms: int
    billable_ms: int
    asset_id: int
    rate: int
    charged: int
    last_seen_at: datetime | None


def record_end(ending: Ending) -> EndRecord:
    """Keep how a lease ended, beside the newest receipt that is believed; once, in the transaction that ends it."""
    newest = metering.newest(ending.lease_id)
    claims = (
        {
            "claimed_ms": newest.billable_ms,
            "claimed": newest.cumulative_amount,
            "receipt_seq": newest.seq,
            "receipt_digest": newest.digest,
        }
        if newest
        else {"claimed_ms": 0, "claimed": 0}
    )
    return EndRecord.objects.create(**asdict(ending), **claims, ended_at=clock.now())
