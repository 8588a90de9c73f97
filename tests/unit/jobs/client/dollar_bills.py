"""A true bill in dollars, of receipts that Bob signed."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from eth_account import Account

from provider_agent.protocol import ZERO_HASH, UsageReceipt, charge, receipt_digest, sign_receipt

BOB = Account.create()
MALLORY = Account.create()
RATE = 720_000
JOB = uuid4()
Bill = dict[str, Any]


def receipts(lease_id: UUID, milliseconds: list[int], *, rate: int = RATE, key: Any = BOB) -> list[dict[str, Any]]:
    """A true chain of receipts, one for each reading of the meter."""
    chain: list[dict[str, Any]] = []
    digest = ZERO_HASH
    for seq, ms in enumerate(milliseconds, 1):
        receipt = UsageReceipt(
            job_id=JOB,
            lease_id=lease_id,
            seq=seq,
            billable_ms=ms,
            cumulative_amount=charge(rate, ms),
            prev_digest=digest,
        )
        digest = receipt_digest(receipt)
        chain.append(sign_receipt(key.key.hex(), receipt).model_dump(mode="json"))
    return chain


def line(milliseconds: list[int], *, billable_ms: int | None = None, attempt: int = 1) -> dict[str, Any]:
    """A true line; `billable_ms` less than claimed where the provider broke it."""
    lease_id = uuid4()
    claimed = milliseconds[-1] if milliseconds else 0
    billed = claimed if billable_ms is None else billable_ms
    return {
        "attempt": attempt,
        "lease_id": str(lease_id),
        "node_name": "bob",
        "receipt_address": BOB.address,
        "devices": 2,
        "rate_usd_micros_per_hour": RATE,
        "receipts": receipts(lease_id, milliseconds),
        "claimed_ms": claimed,
        "observed_ms": claimed,
        "billable_ms": billed,
        "claimed_usd_micros": charge(RATE, claimed),
        "charge_usd_micros": charge(RATE, billed),
        "refunded_usd_micros": charge(RATE, claimed) - charge(RATE, billed),
        "reason": "completed",
        "fault": "nobody",
        "explanation": "",
    }


def true_bill() -> Bill:
    """Lost after 60.001 s and billed to its checkpoint, then completed in 35.5 s."""
    lines = [line([20_000, 45_123, 60_001], billable_ms=45_000), line([10_000, 35_500], attempt=2), line([], attempt=3)]
    total = sum(row["charge_usd_micros"] for row in lines)
    return {
        "job_id": str(JOB),
        "state": "completed",
        "is_final": True,
        "lines": lines,
        "total_usd_micros": total,
        "fee_usd_micros": total // 10,
        "hold_usd_micros": 2_000_000,
        "released_usd_micros": 2_000_000 - total,
    }
