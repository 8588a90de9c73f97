"""What the escrow contract owes to whom, as its events report: payout roots, holds of jobs, settled leases, keys."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q, Value

from billing.fields import AmountField
from billing.models.chain import ChainTransaction, EscrowContract
from billing.states.chain import ESCROW_HOLD_MACHINE, ROOT_MACHINE, EscrowHoldState, RootState
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class PayoutEntry(models.Model):
    """One payout that a root pays. In the order of their ids they add up to what each wallet may claim in all."""

    id = models.BigAutoField(primary_key=True)
    contract = models.ForeignKey(EscrowContract, on_delete=models.PROTECT, related_name="entries")
    payout_id = models.UUIDField(unique=True)
    provider_id = models.UUIDField()
    wallet = models.CharField(max_length=42)
    amount = AmountField()
    cumulative = AmountField()  # of this wallet in this contract, this entry included
    claimed_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(amount__gt=0), name="payout_entry_positive"),
            models.UniqueConstraint(fields=["contract", "wallet", "cumulative"], name="payout_entry_cumulates"),
        ]

    def __str__(self) -> str:
        return f"{self.amount} to {self.wallet}"


class PayoutRoot(models.Model):
    """One Merkle root over every wallet's cumulative total, up to one entry."""

    STATE_MACHINE = ROOT_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    contract = models.ForeignKey(EscrowContract, on_delete=models.PROTECT, related_name="roots")
    last_entry = models.ForeignKey(PayoutEntry, on_delete=models.PROTECT, related_name="+")
    root = models.CharField(max_length=66)
    total = AmountField()
    transaction = models.OneToOneField(
        ChainTransaction, null=True, blank=True, on_delete=models.PROTECT, related_name="payout_root"
    )
    state = models.CharField(max_length=16, choices=RootState.choices, default=RootState.PLANNED)
    active_at = models.DateTimeField(null=True, blank=True)
    may_follow = models.BooleanField(default=False)  # an operator has looked at what became of it
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=RootState.values), name="payout_root_state_known"),
            models.UniqueConstraint(
                fields=["contract"], condition=Q(state__in=["planned", "proposed"]), name="one_root_under_way"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.root} of {self.total} ({self.state})"


class EscrowHold(models.Model):
    """A wallet's money set aside on the chain for one job."""

    STATE_MACHINE = ESCROW_HOLD_MACHINE

    id = models.UUIDField(primary_key=True, editable=False)  # the job's
    contract = models.ForeignKey(EscrowContract, on_delete=models.PROTECT, related_name="holds")
    customer = models.CharField(max_length=42)
    amount = AmountField()
    settled = AmountField(default=0)
    rate_ceiling_per_hour = AmountField()
    parallel_leases = models.PositiveBigIntegerField(default=1, db_default=1)  # of 32 bits
    providers_root = models.CharField(max_length=66)
    providers: models.JSONField[Any, Any] = models.JSONField(default=list, db_default=Value([], models.JSONField()))
    deadline = models.PositiveBigIntegerField()  # unix seconds
    closes_at = models.DateTimeField(null=True, blank=True)  # the settler has begun to close it in the contract
    transaction = models.OneToOneField(
        ChainTransaction, null=True, blank=True, on_delete=models.PROTECT, related_name="escrow_hold"
    )
    state = models.CharField(max_length=16, choices=EscrowHoldState.choices, default=EscrowHoldState.REQUESTED)
    reason = models.CharField(max_length=200, blank=True)
    end_asked_at = models.DateTimeField(null=True, blank=True)  # its job is over: close it once all is settled
    closing = models.OneToOneField(
        ChainTransaction, null=True, blank=True, on_delete=models.PROTECT, related_name="closed_hold"
    )
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=EscrowHoldState.values), name="escrow_hold_state_known"),
            models.CheckConstraint(condition=Q(settled__lte=models.F("amount")), name="escrow_hold_covers_leases"),
        ]

    def __str__(self) -> str:
        return f"{self.amount} of {self.customer} for {self.id} ({self.state})"


class EscrowLease(models.Model):
    """What one lease was settled for on the chain, and how much of it still waits for its window."""

    id = models.UUIDField(primary_key=True, editable=False)  # the lease's
    hold = models.ForeignKey(EscrowHold, on_delete=models.PROTECT, related_name="leases")
    provider = models.CharField(max_length=42)
    seq = models.PositiveBigIntegerField()
    pending = AmountField(default=0)
    paid = AmountField(default=0)
    fee = AmountField(default=0)
    refunded = AmountField(default=0)
    release_at = models.DateTimeField()
    is_challenged = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.id} pending {self.pending}"


class EscrowClaim(models.Model):
    """One receipt that was sent to the contract; a lease's receipts are cumulative, so its newest counts."""

    id = models.BigAutoField(primary_key=True)
    hold = models.ForeignKey(EscrowHold, on_delete=models.PROTECT, related_name="claims")
    lease_id = models.UUIDField()
    provider = models.CharField(max_length=42)
    seq = models.PositiveBigIntegerField()
    amount = AmountField()  # cumulative
    transaction = models.OneToOneField(ChainTransaction, on_delete=models.PROTECT, related_name="claim")
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["lease_id", "seq"], name="escrow_claim_once")]

    def __str__(self) -> str:
        return f"#{self.seq} of lease {self.lease_id}: {self.amount}"


class ReceiptKey(models.Model):
    """Until when the contract accepts a receipt key for a provider's wallet, by its final events."""

    id = models.BigAutoField(primary_key=True)
    contract = models.ForeignKey(EscrowContract, on_delete=models.PROTECT, related_name="receipt_keys")
    provider = models.CharField(max_length=42)
    receipt_key = models.CharField(max_length=42)
    not_after = AmountField()  # unix seconds, of 64 bits; 0: revoked

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["contract", "provider", "receipt_key"], name="receipt_key_once"),
        ]

    def __str__(self) -> str:
        return f"{self.receipt_key} for {self.provider} until {self.not_after}"


class ContractTerms(models.Model):
    """The contract's own periods and fee, which never change; read from the chain once."""

    contract = models.OneToOneField(EscrowContract, primary_key=True, on_delete=models.PROTECT, related_name="periods")
    challenge_seconds = models.PositiveBigIntegerField()
    grace_seconds = models.PositiveBigIntegerField()
    dispute_seconds = models.PositiveBigIntegerField()
    close_seconds = models.PositiveBigIntegerField(default=0, db_default=0)
    fee_bps = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.contract_id}: {self.challenge_seconds} s to challenge, a fee of {self.fee_bps} bps"
