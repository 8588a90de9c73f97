"""What customers challenged in a contract, with everything that the arbiter decides by."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from billing.chain.errors import NotChallenged
from billing.chain.reading import builds
from billing.chain.reading.client import client_of
from billing.models import ChainEvent, EndRecord, EscrowLease, Offence, ReceiptEvidence, UsageReceipt
from provider_agent.protocol import id_bytes32

CASES_MAX: Final = 200
RECEIPTS_MAX: Final = 20  # the newest ones


@dataclass(frozen=True)
class Case:
    """One challenged lease."""

    lease: EscrowLease
    evidence_hash: str  # what the customer gave with its challenge
    decide_until: datetime  # afterwards the provider is paid
    end: EndRecord | None
    receipts: list[UsageReceipt]
    offences: list[Offence]
    contradictions: int

    def as_json(self) -> dict[str, Any]:
        """For a person or a program; amounts with their asset."""
        asset = self.lease.hold.contract.asset
        end = self.end
        bill = (
            {
                "ended": f"{end.reason}, fault: {end.fault}",
                "claimed": f"{end.claimed_ms} ms, {asset.show(end.claimed)}",
                "observed": f"{end.observed_ms} ms",
                "charged": f"{end.billable_ms} ms, {asset.show(end.charged)}",
            }
            if end
            else {"ended": "not yet"}
        )
        return {
            "lease": str(self.lease.pk),
            "job": str(self.lease.hold_id),
            "customer": self.lease.hold.customer,
            "provider": self.lease.provider,
            "waits": asset.show(self.lease.pending),
            "waits_base_units": str(self.lease.pending),
            "evidence_hash": self.evidence_hash,
            "decide_until": self.decide_until.isoformat(),
            **bill,
            "contradictions": self.contradictions,
            "offences": [f"{one.reason} {one.pk}" for one in self.offences],
            "receipts": [
                {
                    "seq": one.seq,
                    "billable_ms": one.billable_ms,
                    "amount": asset.show(one.cumulative_amount),
                    "digest": one.digest,
                }
                for one in self.receipts
            ],
        }


def open_cases() -> list[Case]:
    """Everything that is challenged and not decided, the most urgent first; raises ChainError."""
    rows = EscrowLease.objects.select_related("hold__contract__asset").filter(is_challenged=True, pending__gt=0)
    return [_case(lease) for lease in rows.order_by("release_at")[:CASES_MAX]]


def case_of(lease_id: UUID) -> Case:
    """One of them; raises NotChallenged, ChainError."""
    lease = EscrowLease.objects.select_related("hold__contract__asset").filter(pk=lease_id, is_challenged=True).first()
    if lease is None:
        raise NotChallenged(lease_id=str(lease_id))
    return _case(lease)


def evidence_of(lease: EscrowLease) -> str:
    """The digest that the customer gave with its newest challenge of this lease."""
    word = "0x" + id_bytes32(lease.pk).hex()
    challenges = ChainEvent.objects.filter(name="LeaseChallenged", arguments__leaseId=word, block__state="final")
    newest = challenges.order_by("-block__number", "-log_index").first()
    return str(newest.arguments["evidenceHash"]) if newest else ""


def _case(lease: EscrowLease) -> Case:
    contract = lease.hold.contract
    client = client_of(contract.chain_id)
    abi = builds.load(builds.ESCROW).abi
    seconds = int(client.read(contract.address, abi, "disputeSeconds", at=client.head()))
    return Case(
        lease=lease,
        evidence_hash=evidence_of(lease),
        decide_until=lease.release_at + timedelta(seconds=seconds),
        end=EndRecord.objects.filter(lease_id=lease.pk).first(),
        receipts=list(UsageReceipt.objects.filter(lease_id=lease.pk).order_by("-seq")[:RECEIPTS_MAX]),
        offences=list(Offence.objects.filter(lease_id=lease.pk)),
        contradictions=ReceiptEvidence.objects.filter(lease_id=lease.pk).count(),
    )
