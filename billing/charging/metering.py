"""What a lease has used, believed only as far as it is signed, chained, priced right and observed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import connection, transaction

from billing.errors import (
    Equivocation,
    ReceiptAboveCap,
    ReceiptAboveObserved,
    ReceiptAmountWrong,
    ReceiptChainBroken,
    ReceiptForeign,
    ReceiptGap,
    ReceiptNotMonotone,
    ReceiptRefused,
    ReceiptSignatureInvalid,
)
from billing.models import ReceiptEvidence, UsageReceipt
from provider_agent.protocol import (
    BEAT_SECONDS_LEASED,
    NO_CONTRACT,
    RECEIPTS_PER_APPEND_MAX,
    ZERO_ADDRESS,
    ZERO_HASH,
    ReceiptDomain,
    SignedReceipt,
    charge,
    receipt_digest,
    recover_receipt_signer,
)

HEARTBEAT_MS: Final = BEAT_SECONDS_LEASED * 1000  # what an agent may know before the server saw it
EVIDENCE_PER_LEASE_MAX: Final = 20

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaseTerms:
    """What the receipts of one lease have to agree with."""

    job_id: UUID
    lease_id: UUID
    receipt_address: str
    rate_per_hour: int  # here and below: base units of what pays
    cap: int
    provider: str = ZERO_ADDRESS
    customer: str = ZERO_ADDRESS
    asset: str = ZERO_ADDRESS
    domain: ReceiptDomain = NO_CONTRACT  # the chain and the contract that the receipts are signed for


def accept_receipts(terms: LeaseTerms, receipts: Sequence[SignedReceipt], *, observed_ms: int) -> int:
    """Store what can be believed, in order and without gaps; the newest accepted sequence (0: none yet).

    A repeat changes nothing. At the first receipt that is refused the good ones before it are kept, and its error is
    raised with `seq` = the newest accepted. A contradiction is kept as evidence and raised as Equivocation: call this
    outside of a transaction, or a rollback takes the evidence with it (the log line stays).
    """
    refusal: ReceiptRefused | None = None
    with transaction.atomic():
        _lock_lease(terms.lease_id)
        last = newest(terms.lease_id)
        fresh: list[UsageReceipt] = []
        for signed in receipts[:RECEIPTS_PER_APPEND_MAX]:
            try:
                row = _check(terms, signed, last, fresh, observed_ms)
            except ReceiptRefused as error:
                refusal = error
                break
            if row is not None:
                fresh.append(row)
                last = row
        UsageReceipt.objects.bulk_create(fresh)
        if isinstance(refusal, Equivocation):
            _keep_evidence(terms, signed)
    seq = last.seq if last else 0
    if refusal is not None:
        refusal.seq = refusal.details["seq"] = seq
        raise refusal
    return seq


def newest(lease_id: UUID) -> UsageReceipt | None:
    """The last accepted receipt of a lease: its figures are cumulative, so it alone has the whole use."""
    return UsageReceipt.objects.filter(lease_id=lease_id).order_by("-seq").first()


def newest_within(lease_id: UUID, billable_ms: int) -> UsageReceipt | None:
    """The last accepted receipt of a lease that claims at most so many milliseconds."""
    return UsageReceipt.objects.filter(lease_id=lease_id, billable_ms__lte=billable_ms).order_by("-seq").first()


def _check(
    terms: LeaseTerms, signed: SignedReceipt, last: UsageReceipt | None, fresh: Sequence[UsageReceipt], observed_ms: int
) -> UsageReceipt | None:
    """The row to store, or None for an exact repeat; raises what is wrong with it."""
    receipt = signed.receipt
    lease_id, seq = terms.lease_id, receipt.seq
    for field in ("job_id", "lease_id", "provider", "customer", "asset"):
        if str(getattr(receipt, field)).lower() != str(getattr(terms, field)).lower():
            raise ReceiptForeign(lease_id, seq, field=field)
    digest = receipt_digest(receipt, terms.domain)
    # The signature comes before any comparison: only what the lease's own key signed can be evidence against it.
    try:
        signer = recover_receipt_signer(signed, terms.domain)
    except ValueError as error:
        raise ReceiptSignatureInvalid(lease_id, seq) from error
    if signer.lower() != terms.receipt_address.lower():
        raise ReceiptSignatureInvalid(lease_id, seq)

    last_seq = last.seq if last else 0
    if seq <= last_seq:
        stored = next((row for row in fresh if row.seq == seq), None) or _stored(lease_id, seq)
        if stored.digest != digest:
            raise Equivocation(lease_id, seq)
        return None
    if seq != last_seq + 1:
        raise ReceiptGap(lease_id, seq, expected_seq=last_seq + 1)
    if receipt.prev_digest != (last.digest if last else ZERO_HASH):
        raise ReceiptChainBroken(lease_id, seq)
    if last is not None and receipt.billable_ms < last.billable_ms:
        raise ReceiptNotMonotone(lease_id, seq)
    expected = charge(terms.rate_per_hour, receipt.billable_ms)
    if receipt.cumulative_amount != expected:
        raise ReceiptAmountWrong(lease_id, seq, expected=str(expected))
    if receipt.cumulative_amount > terms.cap:
        raise ReceiptAboveCap(lease_id, seq, cap=str(terms.cap))
    if receipt.billable_ms > observed_ms + HEARTBEAT_MS:
        raise ReceiptAboveObserved(lease_id, seq, observed_ms=observed_ms, billable_ms=receipt.billable_ms)
    return UsageReceipt(
        **receipt.model_dump(),
        chain_id=terms.domain.chain_id,
        contract=terms.domain.verifying_contract,
        digest=digest,
        signature=signed.signature,
        signer=terms.receipt_address,
    )


def _stored(lease_id: UUID, seq: int) -> UsageReceipt:
    return UsageReceipt.objects.get(lease_id=lease_id, seq=seq)


def _keep_evidence(terms: LeaseTerms, other: SignedReceipt) -> None:
    accepted = _stored(terms.lease_id, other.receipt.seq)
    other_digest = receipt_digest(other.receipt, terms.domain)
    log.warning(
        "A lease signed two different receipts with one sequence. lease_id=%s seq=%s accepted=%s other=%s signature=%s",
        terms.lease_id,
        other.receipt.seq,
        accepted.digest,
        other_digest,
        other.signature,
    )
    if ReceiptEvidence.objects.filter(lease_id=terms.lease_id).count() >= EVIDENCE_PER_LEASE_MAX:
        return  # proven often enough: endless signed lies must not fill the database
    ReceiptEvidence.objects.get_or_create(
        lease_id=terms.lease_id,
        seq=other.receipt.seq,
        other_digest=other_digest,
        defaults={
            "job_id": terms.job_id,
            "signer": terms.receipt_address,
            "accepted_digest": accepted.digest,
            "accepted": accepted.as_signed().model_dump(mode="json"),
            "other": other.model_dump(mode="json"),
            "chain_id": terms.domain.chain_id,
            "contract": terms.domain.verifying_contract,
        },
    )


def _lock_lease(lease_id: UUID) -> None:
    """One append a lease at a time; billing has no row for a lease, so the lock is advisory, until the commit."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"receipts:{lease_id}"])
