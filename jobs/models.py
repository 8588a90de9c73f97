"""Demand and what came of it: quotes, jobs, attempts, leases, their streams, artifacts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from billing.fields import AmountField
from billing.models import Asset
from billing.models.ledger import USD_ASSET_ID
from jobs.payment import Payment
from jobs.querysets import ArtifactQuerySet, AttemptQuerySet, JobQuerySet, LeaseQuerySet
from jobs.states import (
    ARTIFACT_MACHINE,
    ATTEMPT_CHOICES,
    ATTEMPT_LIVE,
    ATTEMPT_MACHINE,
    JOB_MACHINE,
    LEASE_LIVE,
    LEASE_MACHINE,
    ArtifactState,
    JobState,
    LeaseState,
)
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id
from marketplace.nodes.models import Device, Node, Offer
from provider_agent.protocol import AttemptState, PaymentTerms, ReceiptKeyDelegation, SignedDelegation

# Named one by one: a comparison with NULL is neither true nor false, and so would let half a charge pass.
_BOTH_CHARGES_EQUAL = Q(charge_units__isnull=False, charge_usd_micros__isnull=False) & Q(
    charge_units=F("charge_usd_micros")
)


class Quote(models.Model):
    """A price promise: this spec, never more than this cap, if submitted before it expires. Signed, never changed."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="quotes")
    spec: models.JSONField[Any, Any] = models.JSONField()
    spec_hash = models.CharField(max_length=64)
    price_ceiling_usd_micros = models.PositiveBigIntegerField()  # per device and hour; placing may not exceed it
    expected_usd_micros = models.PositiveBigIntegerField()
    expected_seconds = models.FloatField(null=True)  # None: the job declares no work
    cap_usd_micros = models.PositiveBigIntegerField()
    # The price that is promised with it; of dollars there is none.
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_index=False)
    usd_micros_per_token = AmountField(default=1_000_000)  # of one whole token
    price_source = models.CharField(max_length=40, blank=True)
    price_observed_at = models.DateTimeField(null=True, blank=True)
    plan: models.JSONField[Any, Any] = models.JSONField()  # jobs.wire.Plan: candidates, exclusions, fixes
    signature = models.CharField(max_length=120)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(cap_usd_micros__gt=0), name="quote_has_a_cap"),
            models.CheckConstraint(
                condition=Q(usd_micros_per_token__gt=0)
                & (
                    Q(asset=USD_ASSET_ID, usd_micros_per_token=1_000_000)
                    | (~Q(asset=USD_ASSET_ID) & ~Q(price_source="") & Q(price_observed_at__isnull=False))
                ),
                name="quote_in_a_token_has_its_price",
            ),
        ]

    def __str__(self) -> str:
        return f"quote {self.id}"

    @property
    def payment(self) -> Payment:
        """What a job of this quote pays with, at the locked price."""
        asset = self.asset
        return Payment(
            asset.code, asset.scale, int(self.usd_micros_per_token), self.price_source, self.price_observed_at
        )


class PaymentMode(models.TextChoices):
    """credits: from the organisation's balance here. escrow: from the customer's wallet, by the contract."""

    CREDITS = "credits"
    ESCROW = "escrow"


class Job(models.Model):
    """What a customer submitted, and where it is now."""

    STATE_MACHINE = JOB_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="jobs")
    submitted_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    quote = models.OneToOneField(Quote, on_delete=models.PROTECT, related_name="job")
    name = models.CharField(max_length=64)
    kind = models.CharField(max_length=16)
    state = models.CharField(max_length=16, choices=JobState.choices, default=JobState.QUEUED)
    reason = models.CharField(max_length=64, blank=True)
    message = models.TextField(blank=True)
    waiting_for = models.TextField(blank=True)  # why it is not placed yet, for people
    spec: models.JSONField[Any, Any] = models.JSONField()
    spec_hash = models.CharField(max_length=64)
    sealed_secrets = models.TextField(blank=True)  # emptied when the job ends
    input_artifact = models.ForeignKey("Artifact", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    priority = models.PositiveSmallIntegerField(default=50)
    price_ceiling_usd_micros = models.PositiveBigIntegerField()
    cap_usd_micros = models.PositiveBigIntegerField()
    payment_mode = models.CharField(max_length=8, choices=PaymentMode.choices, default=PaymentMode.CREDITS)
    attempts_max = models.PositiveSmallIntegerField(default=5)
    progress: models.JSONField[Any, Any] = models.JSONField(default=dict, blank=True)  # the newest step event
    deadline_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    cancel_reason = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    queued_at = models.DateTimeField()
    running_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=JobState.values), name="job_state_known"),
            models.CheckConstraint(condition=Q(cap_usd_micros__gt=0), name="job_has_a_cap"),
            models.CheckConstraint(condition=Q(payment_mode__in=PaymentMode.values), name="job_payment_mode_known"),
        ]
        indexes = [models.Index(fields=["state", "-priority", "queued_at"], name="job_queue")]

    def __str__(self) -> str:
        return f"{self.name} ({self.state})"

    @property
    def is_escrow(self) -> bool:
        """Whether its money is held in the contract, out of the customer's own wallet, and nothing in the ledger."""
        return self.payment_mode == PaymentMode.ESCROW


class Attempt(models.Model):
    """One try at a job on one set of leases."""

    STATE_MACHINE = ATTEMPT_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="attempts")
    number = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=16, choices=ATTEMPT_CHOICES, default=AttemptState.ASSIGNED.value)
    reason = models.CharField(max_length=64, blank=True)
    fault = models.CharField(max_length=16, blank=True)
    message = models.TextField(blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    resume_artifact = models.ForeignKey("Artifact", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    master_port = models.PositiveIntegerField(default=29500)
    created_at = models.DateTimeField(auto_now_add=True)
    running_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = AttemptQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="attempts_are_numbered"),
            models.UniqueConstraint(
                fields=["job"], condition=Q(state__in=sorted(ATTEMPT_LIVE)), name="one_live_attempt_per_job"
            ),
            models.CheckConstraint(
                condition=Q(state__in=sorted(state.value for state in AttemptState)), name="attempt_state_known"
            ),
        ]
        ordering = ["job", "number"]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.job.name} ({self.state})"


class Lease(models.Model):
    """An exclusive, expiring right to devices of one node, at a frozen price, for one attempt."""

    STATE_MACHINE = LEASE_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="leases")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="leases")
    offer = models.ForeignKey(Offer, on_delete=models.PROTECT, related_name="leases")
    devices = models.ManyToManyField(Device, through="LeaseDevice", related_name="leases")
    state = models.CharField(max_length=16, choices=LeaseState.choices, default=LeaseState.RESERVED)
    fence = models.BigIntegerField(unique=True)  # from one sequence, so it rises with every lease of a device
    node_rank = models.PositiveSmallIntegerField(default=0)
    device_count = models.PositiveSmallIntegerField()
    price_usd_micros_per_device_hour = models.PositiveBigIntegerField()
    rate_usd_micros_per_hour = models.PositiveBigIntegerField()  # price x devices
    cap_usd_micros = models.PositiveBigIntegerField()
    # The same in base units of what pays: money and receipts count in these. Of dollars they are equal.
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_index=False)
    rate_units_per_hour = AmountField()
    cap_units = AmountField()
    payment: models.JSONField[Any, Any] = models.JSONField(default=dict, blank=True)  # PaymentTerms; empty: dollars
    lease_until = models.DateTimeField()  # moved on by every sync
    stop_reason = models.CharField(max_length=64, blank=True)  # why the server wants it stopped; empty: it should run
    stop_asked_at = models.DateTimeField(null=True, blank=True)
    # What the agent last reported, and what the server saw of it.
    reported_state = models.CharField(max_length=16, choices=ATTEMPT_CHOICES, default=AttemptState.ASSIGNED.value)
    reported_reason = models.CharField(max_length=64, blank=True)
    reported_message = models.TextField(blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    reported_at = models.DateTimeField(null=True, blank=True)
    running_at = models.DateTimeField(null=True, blank=True)  # first report of RUNNING, server's time
    observed_until = models.DateTimeField(null=True, blank=True)  # newest report of it running, server's time
    log_bytes = models.PositiveBigIntegerField(default=0)  # received
    event_bytes = models.PositiveBigIntegerField(default=0)
    log_bytes_final = models.PositiveBigIntegerField(null=True, blank=True)  # written in all, known at the end
    event_bytes_final = models.PositiveBigIntegerField(null=True, blank=True)
    receipt_seq_final = models.PositiveBigIntegerField(null=True, blank=True)  # the newest receipt that was made
    # Decided when it ends, never changed after.
    billable_ms = models.PositiveBigIntegerField(null=True, blank=True)
    charge_usd_micros = models.PositiveBigIntegerField(null=True, blank=True)
    charge_units = AmountField(null=True, blank=True)  # type: ignore[misc] # its own type knows no NULL
    charged_seq = models.PositiveBigIntegerField(null=True, blank=True)  # the receipt that counted; 0: none had come
    checkpoint_ms = models.PositiveBigIntegerField(null=True, blank=True)  # where the rule billed up to a checkpoint
    reserved_at = models.DateTimeField(auto_now_add=True)
    active_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = LeaseQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt", "node_rank"], name="one_lease_per_rank"),
            models.CheckConstraint(condition=Q(state__in=LeaseState.values), name="lease_state_known"),
            models.CheckConstraint(
                condition=Q(rate_usd_micros_per_hour=F("price_usd_micros_per_device_hour") * F("device_count")),
                name="lease_rate_is_price_times_devices",
            ),
            models.CheckConstraint(
                condition=Q(charge_usd_micros=None) | Q(charge_usd_micros__lte=F("cap_usd_micros")),
                name="lease_charge_within_cap",
            ),
            models.CheckConstraint(
                condition=Q(charge_units=None) | Q(charge_units__gte=0, charge_units__lte=F("cap_units")),
                name="lease_charge_units_within_cap",
            ),
            models.CheckConstraint(
                condition=~Q(asset=USD_ASSET_ID)
                | (
                    Q(rate_units_per_hour=F("rate_usd_micros_per_hour"), cap_units=F("cap_usd_micros"))
                    & (Q(charge_units=None, charge_usd_micros=None) | _BOTH_CHARGES_EQUAL)
                ),
                name="lease_in_dollars_counts_in_dollars",
            ),
            models.CheckConstraint(
                condition=Q(asset=USD_ASSET_ID, payment={}) | (~Q(asset=USD_ASSET_ID) & ~Q(payment={})),
                name="lease_in_a_token_has_its_terms",
            ),
        ]
        indexes = [
            models.Index(fields=["node"], condition=Q(state__in=sorted(LEASE_LIVE)), name="lease_live_by_node"),
            models.Index(fields=["lease_until"], condition=Q(state__in=sorted(LEASE_LIVE)), name="lease_live_until"),
        ]

    def __str__(self) -> str:
        return f"lease {self.id} ({self.state})"

    @property
    def observed_ms(self) -> int:
        """How long the server saw it run, in milliseconds."""
        if self.running_at is None or self.observed_until is None:
            return 0
        return max(0, (self.observed_until - self.running_at) // timedelta(milliseconds=1))

    @property
    def payment_terms(self) -> PaymentTerms | None:
        """What its node was told of the token that pays; None: dollars."""
        return PaymentTerms.model_validate(self.payment) if self.payment else None


class LeaseDevice(models.Model):
    """One device of one lease. The database lets a device have one live lease, whoever races."""

    lease = models.ForeignKey(Lease, on_delete=models.CASCADE, related_name="lease_devices")
    device = models.ForeignKey(Device, on_delete=models.PROTECT, related_name="lease_devices")
    is_live = models.BooleanField(default=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lease", "device"], name="device_once_per_lease"),
            models.UniqueConstraint(fields=["device"], condition=Q(is_live=True), name="one_live_lease_per_device"),
        ]

    def __str__(self) -> str:
        return f"{self.device_id} in {self.lease_id}"


class ReceiptDelegation(models.Model):
    """A payout wallet's signed word that a node's receipt key may speak for it on one contract, until a moment."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="delegations")
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_index=False)
    chain_id = models.PositiveBigIntegerField()
    contract = models.CharField(max_length=42)
    wallet = models.CharField(max_length=42)
    receipt_address = models.CharField(max_length=42)
    not_after = models.DateTimeField()
    nonce = AmountField()
    signature = models.CharField(max_length=132)
    created_by = models.CharField(max_length=120)
    created_at = models.DateTimeField(default=clock.now)
    told_at = models.DateTimeField(null=True, blank=True)  # when its registration with the contract was planned
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["chain_id", "contract", "wallet", "nonce"], name="delegation_nonce_once"),
            models.UniqueConstraint(
                fields=["node", "asset"], condition=Q(revoked_at=None), name="one_delegation_per_node_and_asset"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.wallet} by {self.receipt_address} until {self.not_after}"

    def as_signed(self) -> SignedDelegation:
        """What the wallet signed."""
        said = ReceiptKeyDelegation(
            provider=self.wallet,
            receipt_key=self.receipt_address,
            not_after=int(self.not_after.timestamp()),
            nonce=int(self.nonce),
        )
        return SignedDelegation(delegation=said, signature=self.signature)


class Stream(models.TextChoices):
    """What an agent appends by offset."""

    LOG = "log"
    EVENT = "event"


class StreamChunk(models.Model):
    """A piece of a lease's log or events, at its offset. Chunks of a stream have no gap and no overlap."""

    id = models.BigAutoField(primary_key=True)
    lease = models.ForeignKey(Lease, on_delete=models.CASCADE, related_name="chunks")
    stream = models.CharField(max_length=8, choices=Stream.choices)
    offset = models.PositiveBigIntegerField()
    data = models.BinaryField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lease", "stream", "offset"], name="chunk_once_per_offset"),
            models.CheckConstraint(condition=Q(stream__in=Stream.values), name="chunk_stream_known"),
        ]

    def __str__(self) -> str:
        return f"{self.stream} of {self.lease_id} at {self.offset}"


class ArtifactKind(models.TextChoices):
    """input: the customer's files. checkpoint: where a job can go on. output: what the customer gets."""

    INPUT = "input"
    CHECKPOINT = "checkpoint"
    OUTPUT = "output"


class Artifact(models.Model):
    """A set of files in the store, complete when every node's part is."""

    STATE_MACHINE = ARTIFACT_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="artifacts")
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.PROTECT, related_name="artifacts")
    attempt = models.ForeignKey(Attempt, null=True, blank=True, on_delete=models.PROTECT, related_name="artifacts")
    kind = models.CharField(max_length=16, choices=ArtifactKind.choices)
    step = models.PositiveBigIntegerField(null=True, blank=True)
    state = models.CharField(max_length=16, choices=ArtifactState.choices, default=ArtifactState.UPLOADING)
    parts_expected = models.PositiveSmallIntegerField(default=1)
    size_bytes = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    completed_at = models.DateTimeField(null=True, blank=True)

    objects = ArtifactQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=ArtifactState.values), name="artifact_state_known"),
            models.UniqueConstraint(
                fields=["attempt", "kind", "step"],
                nulls_distinct=False,
                condition=Q(attempt__isnull=False),
                name="one_artifact_per_attempt_and_step",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id} ({self.state})"


class ArtifactPart(models.Model):
    """What one node (or the customer) puts into an artifact: files with their SHA-256, and where the meter stood."""

    artifact = models.ForeignKey(Artifact, on_delete=models.CASCADE, related_name="parts")
    lease = models.ForeignKey(Lease, null=True, blank=True, on_delete=models.PROTECT, related_name="artifact_parts")
    node_rank = models.PositiveSmallIntegerField(default=0)
    files: models.JSONField[Any, Any] = models.JSONField()  # [{"path", "size", "sha256", "upload_id"?}]
    billable_ms = models.PositiveBigIntegerField(default=0)  # the lease's meter when the files were complete
    is_complete = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["artifact", "node_rank"], name="one_part_per_rank")]

    def __str__(self) -> str:
        return f"part {self.node_rank} of {self.artifact_id}"
