"""Holds on the chain: what customers and providers sign, and a job that is paid from one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from billing.chain import escrow
from billing.proofs.escrow import (
    HoldAuthorization,
    ReceiptKeyDelegation,
    SignedHoldAuthorization,
    providers_root,
    sign_authorization,
    sign_delegation,
)
from marketplace.foundation import clock
from provider_agent.protocol import SignedReceipt, UsageReceipt, charge, sign_receipt
from tests.integration.billing.chain.town import TOKEN, Town

RATE = 36 * TOKEN  # an hour: 10,000 base units a second
SECONDS_HELD = 2_000  # that have passed on the chain since a hold was opened: so much can be billed


def authorize(
    town: Town,
    job_id: UUID,
    amount: int = 10 * TOKEN,
    *,
    signer: str = "Alice",
    providers: Sequence[str] = (),
    **changes: Any,
) -> SignedHoldAuthorization:
    fields: dict[str, Any] = {
        "job_id": job_id,
        "customer": town.key("Alice").address,
        "asset": town.token,
        "max_amount": amount,
        "rate_ceiling_per_hour": RATE,
        "parallel_leases": 4,
        "providers_root": providers_root(providers),
        "deadline": int(clock.now().timestamp()) + 7200,
        "nonce": uuid4().int,
    }
    one = HoldAuthorization(**(fields | changes))
    return sign_authorization(town.secret(signer), one, escrow.domain_of(town.contract), providers)


def receipt_of(town: Town, job_id: UUID, lease_id: UUID, seq: int, ms: int) -> SignedReceipt:
    one = UsageReceipt(
        job_id=job_id,
        lease_id=lease_id,
        provider=town.key("Bob").address,
        customer=town.key("Alice").address,
        asset=town.token,
        seq=seq,
        billable_ms=ms,
        cumulative_amount=charge(RATE, ms),
    )
    return sign_receipt(town.secret("Bob's node"), one, escrow.domain_of(town.contract))


def delegate(town: Town, seconds: int = 86_400) -> None:
    one = ReceiptKeyDelegation(
        provider=town.key("Bob").address,
        receipt_key=town.key("Bob's node").address,
        not_after=int(clock.now().timestamp()) + seconds,
        nonce=uuid4().int,
    )
    escrow.register_receipt_key(
        town.asset_id, sign_delegation(town.secret("Bob"), one, escrow.domain_of(town.contract))
    )
    town.follow()


def open_job(town: Town, amount: int = 10 * TOKEN, **changes: Any) -> UUID:
    """Alice's hold of a new job, open and final."""
    job_id = uuid4()
    escrow.open_hold(town.asset_id, authorize(town, job_id, amount, **changes))
    town.follow()
    assert escrow.is_open(job_id)
    town.pass_seconds(SECONDS_HELD)
    return job_id
