"""What a job costs, line by line, with the receipts that prove it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from jobs.wire.base import Wire
from provider_agent.protocol import SignedReceipt


class BillLine(Wire):
    """One lease: what its newest receipt says, what is charged, and why the two differ where they do."""

    attempt: int
    lease_id: UUID
    node_name: str
    receipt_address: str  # the key that must have signed
    devices: int
    rate_usd_micros_per_hour: int
    receipts: list[SignedReceipt]
    claimed_ms: int
    observed_ms: int
    billable_ms: int
    claimed_usd_micros: int
    charge_usd_micros: int
    refunded_usd_micros: int  # claimed - charged
    reason: str
    fault: str
    explanation: str


class BillView(Wire):
    """GET /api/v1/jobs/{id}/bill: adds up to the charged amount, to the micro-dollar."""

    job_id: UUID
    state: str
    is_final: bool
    lines: list[BillLine]
    total_usd_micros: int
    fee_usd_micros: int
    hold_usd_micros: int
    released_usd_micros: int
    settlement: dict[str, Any] | None = None
