"""A true bill in tokens, of receipts for the escrow contract."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from eth_account import Account

from provider_agent.protocol import (
    ZERO_HASH,
    ReceiptDomain,
    UsageReceipt,
    charge,
    receipt_digest,
    sign_receipt,
)
from tests.unit.jobs.client.fake_answers import NOW

NODE, MALLORY = Account.create(), Account.create()
ALICE, BOB = "0x" + "a1" * 20, "0x" + "b0" * 20
CONTRACT, TOKEN = "0x" + "c0" * 20, "0x" + "70" * 20
RATE, JOB, LEASE = 720_000, uuid4(), uuid4()
HELD, CLAIMED_MS = 2_000_000, 60_000
DOMAIN = ReceiptDomain(chain_id=31337, verifying_contract=CONTRACT)
Bill = dict[str, Any]


def receipts(milliseconds: list[int], **parties: str) -> list[dict[str, Any]]:
    chain: list[dict[str, Any]] = []
    digest = ZERO_HASH
    who = {"provider": BOB, "customer": ALICE, "asset": TOKEN} | parties
    for seq, ms in enumerate(milliseconds, 1):
        one = UsageReceipt(
            job_id=JOB,
            lease_id=LEASE,
            seq=seq,
            billable_ms=ms,
            cumulative_amount=charge(RATE, ms),
            prev_digest=digest,
            **who,
        )
        digest = receipt_digest(one, DOMAIN)
        chain.append(sign_receipt(NODE.key.hex(), one, DOMAIN).model_dump(mode="json"))
    return chain


def true_bill(**terms: Any) -> Bill:
    """One lease of 60 s: 12,000 units, of which the fee is 1,200; half an hour's hold was left."""
    due = charge(RATE, CLAIMED_MS)
    return {
        "job_id": str(JOB),
        "state": "completed",
        "is_final": True,
        "lines": [_line(due, terms)],
        "total_usd_micros": due,
        "fee_usd_micros": due // 10,
        "hold_usd_micros": HELD,
        "released_usd_micros": HELD - due,
        "asset": "TUSD",
        "price": {"usd_micros_per_token": "1000000", "source": "test", "observed_at": None},
        "cap_usd_micros": HELD,
        "escrow": _contracts_hold(due),
    }


def _line(due: int, terms: dict[str, Any]) -> dict[str, Any]:
    """What the marketplace charges for the lease, and the receipts that say so."""
    parties = {name: terms[name] for name in ("provider", "customer") if name in terms}
    payment = {
        "asset": "TUSD",
        "token": TOKEN,
        "chain_id": 31337,
        "contract": CONTRACT,
        "provider": BOB,
        "customer": ALICE,
        "rate_per_hour": RATE,
        "cap": HELD,
    }
    return {
        "attempt": 1,
        "lease_id": str(LEASE),
        "node_name": "bob",
        "receipt_address": NODE.address,
        "devices": 2,
        "rate_usd_micros_per_hour": RATE,
        "receipts": receipts([CLAIMED_MS // 2, CLAIMED_MS], **parties),
        "claimed_ms": CLAIMED_MS,
        "observed_ms": CLAIMED_MS,
        "billable_ms": CLAIMED_MS,
        "claimed_usd_micros": due,
        "charge_usd_micros": due,
        "refunded_usd_micros": 0,
        "reason": "completed",
        "fault": "nobody",
        "explanation": "",
        "is_ended": True,
        "charged_seq": 2,
        "cap_units": str(HELD),
        "payment": payment | terms,
    }


def _contracts_hold(due: int) -> dict[str, Any]:
    """The contract's state: held, settled by one lease and paid out, the rest given back."""
    lease = {
        "lease_id": str(LEASE),
        "provider": BOB,
        "settled_units": str(due),
        "pending_units": "0",
        "paid_units": str(due - due // 10),
        "fee_units": str(due // 10),
        "refunded_units": "0",
        "release_at": NOW.isoformat(),
        "is_challenged": False,
    }
    return {
        "state": "closed",
        "reason": "",
        "wallet": ALICE,
        "chain_id": 31337,
        "contract": CONTRACT,
        "held_units": str(HELD),
        "settled_units": str(due),
        "refunded_units": str(HELD - due),
        "deadline": NOW.isoformat(),
        "transaction_hash": "0x" + "11" * 32,
        "leases": [lease],
    }
