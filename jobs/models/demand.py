"""What a customer asks for and is promised: quotes, and the jobs that are made of them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q, Value

from billing.fields import AmountField
from billing.models import Asset
from billing.models.ledger import USD_ASSET_ID
from jobs.models.querysets import JobQuerySet
from jobs.payment.terms import USD, Payment
from jobs.spec.kinds.registry import KINDS
from jobs.states import JOB_MACHINE, JobState
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


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
    # Wallets that a contract may pay for the job; only where a customer's wallet pays.
    providers: models.JSONField[Any, Any] = models.JSONField(default=list, db_default=Value([], models.JSONField()))
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
    # The API key of that submission; None: in person. No relation: also of a deleted key the job shows that it had one.
    submitted_with = models.UUIDField(null=True, blank=True)
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
    # Set aside by placing: NULL where it is not. What its hold needs and its organisation has not got; fits nowhere.
    unfunded_units = AmountField(null=True, blank=True)  # type: ignore[misc] # its own type knows no NULL
    skipped_until = models.DateTimeField(null=True, blank=True)
    running_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=JobState.values), name="job_state_known"),
            models.CheckConstraint(condition=Q(kind__in=list(KINDS)), name="job_kind_known"),
            models.CheckConstraint(condition=Q(cap_usd_micros__gt=0), name="job_has_a_cap"),
            models.CheckConstraint(condition=Q(payment_mode__in=PaymentMode.values), name="job_payment_mode_known"),
            models.CheckConstraint(
                condition=Q(unfunded_units=None) | Q(unfunded_units__gt=0), name="job_lacks_an_amount_or_none"
            ),
        ]
        indexes = [
            models.Index(fields=["state", "-priority", "queued_at"], name="job_queue"),
            models.Index(fields=["organisation"], condition=Q(unfunded_units__isnull=False), name="jobs_unfunded"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.state})"

    @property
    def is_escrow(self) -> bool:
        """Whether its money is held in the contract, out of the customer's own wallet, and nothing in the ledger."""
        return self.payment_mode == PaymentMode.ESCROW

    @property
    def is_late(self) -> bool:
        """Whether its deadline has passed."""
        return self.deadline_at is not None and self.deadline_at <= clock.now()

    @property
    def asset_code(self) -> str:
        """What pays, as its job file names it: read without its quote."""
        return str((self.spec.get("payment") or {}).get("asset", USD))
