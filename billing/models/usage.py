"""Signed statements of use, and the proof when somebody signed two that contradict each other."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import models
from django.db.models import Q

from billing.fields import AmountField
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id
from provider_agent import protocol


class UsageReceiptQuerySet(models.QuerySet["UsageReceipt"]):
    def of_lease(self, lease_id: UUID) -> UsageReceiptQuerySet:
        """The receipts of one lease, oldest first."""
        return self.filter(lease_id=lease_id).order_by("seq")


class UsageReceipt(models.Model):
    """One accepted receipt of one lease, with everything needed to verify its signature and chain again."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job_id = models.UUIDField(db_index=True)
    lease_id = models.UUIDField()
    seq = models.PositiveBigIntegerField()
    billable_ms = models.PositiveBigIntegerField()  # cumulative
    cumulative_amount = AmountField()
    provider = models.CharField(max_length=42)
    customer = models.CharField(max_length=42)
    asset = models.CharField(max_length=42)
    chain_id = models.PositiveBigIntegerField(default=0)  # the domain that it is signed for; 0: no contract
    contract = models.CharField(max_length=42, default=protocol.ZERO_ADDRESS)
    meter_hash = models.CharField(max_length=66)
    prev_digest = models.CharField(max_length=66)
    digest = models.CharField(max_length=66, unique=True)
    signature = models.CharField(max_length=132)
    signer = models.CharField(max_length=42)
    received_at = models.DateTimeField(default=clock.now)
    row_digest = models.CharField(max_length=64, default="", editable=False)  # of all columns: see digest_rows.sql

    objects = UsageReceiptQuerySet.as_manager()

    class Meta:
        ordering = ["lease_id", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["lease_id", "seq"], name="one_receipt_per_seq"),
            models.CheckConstraint(condition=Q(seq__gte=1), name="receipt_seq_from_one"),
            models.CheckConstraint(condition=Q(cumulative_amount__gte=0), name="receipt_amount_nonnegative"),
        ]

    def __str__(self) -> str:
        return f"#{self.seq} of lease {self.lease_id}: {self.billable_ms} ms, {self.cumulative_amount}"

    @property
    def domain(self) -> protocol.ReceiptDomain:
        """The chain and the contract that it is signed for."""
        return protocol.ReceiptDomain(chain_id=self.chain_id, verifying_contract=self.contract)

    def as_signed(self) -> protocol.SignedReceipt:
        """The receipt as the agent sent it."""
        receipt = protocol.UsageReceipt(
            job_id=self.job_id,
            lease_id=self.lease_id,
            provider=self.provider,
            customer=self.customer,
            asset=self.asset,
            seq=self.seq,
            billable_ms=self.billable_ms,
            cumulative_amount=self.cumulative_amount,
            meter_hash=self.meter_hash,
            prev_digest=self.prev_digest,
        )
        return protocol.SignedReceipt(receipt=receipt, signature=self.signature)


class ReceiptEvidence(models.Model):
    """Two receipts with one sequence, both signed by the lease's key: proof of a lie that no clock can excuse."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job_id = models.UUIDField()
    lease_id = models.UUIDField(db_index=True)
    seq = models.PositiveBigIntegerField()
    signer = models.CharField(max_length=42)
    accepted_digest = models.CharField(max_length=66)
    other_digest = models.CharField(max_length=66)
    accepted: models.JSONField[Any, Any] = models.JSONField()  # both SignedReceipts in full
    other: models.JSONField[Any, Any] = models.JSONField()
    chain_id = models.PositiveBigIntegerField(default=0)  # the domain that both are signed for; 0: no contract
    contract = models.CharField(max_length=42, default=protocol.ZERO_ADDRESS)
    found_at = models.DateTimeField(default=clock.now)
    row_digest = models.CharField(max_length=64, default="", editable=False)  # of all columns: see digest_rows.sql

    class Meta:
        verbose_name_plural = "receipt evidence"
        constraints = [
            models.UniqueConstraint(fields=["lease_id", "seq", "other_digest"], name="evidence_once"),
        ]

    def __str__(self) -> str:
        return f"#{self.seq} of lease {self.lease_id}: {self.accepted_digest} and {self.other_digest}"
