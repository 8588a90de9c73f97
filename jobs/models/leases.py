"""What came of a job: attempts, and the leases of each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import F, Q

from billing.fields import AmountField
from billing.models import Asset
from billing.models.ledger import USD_ASSET_ID
from jobs.models.demand import Job
from jobs.models.prices import PriceLock
from jobs.models.querysets import AttemptQuerySet, LeaseQuerySet
from jobs.states import (
    ATTEMPT_CHOICES,
    ATTEMPT_LIVE,
    ATTEMPT_MACHINE,
    LEASE_LIVE,
    LEASE_MACHINE,
    LeaseState,
)
from marketplace.foundation.ids import new_id
from marketplace.nodes.models import Device, Node, Offer
from provider_agent.protocol import REASONS, AttemptState, Billable, PaymentTerms, Reason

# Named one by one: a comparison with NULL is neither true nor false, and so would let half a charge pass.
_BOTH_CHARGES_EQUAL = Q(charge_units__isnull=False, charge_usd_micros__isnull=False) & Q(
    charge_units=F("charge_usd_micros")
)


class Attempt(models.Model):
    """One try at a job on one set of leases."""

    STATE_MACHINE = ATTEMPT_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="attempts")
    number = models.PositiveIntegerField()
    slot = models.PositiveSmallIntegerField(default=0)  # of a serving job: which of its replicas' places
    state = models.CharField(max_length=16, choices=ATTEMPT_CHOICES, default=AttemptState.ASSIGNED.value)
    reason = models.CharField(max_length=64, blank=True)
    fault = models.CharField(max_length=16, blank=True)
    message = models.TextField(blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    resume_artifact = models.ForeignKey("Artifact", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    master_port = models.PositiveIntegerField(default=29500)
    # What its first generation resumed from, where there were more: later ones go on from what it saved itself.
    began_from = models.ForeignKey("Artifact", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    generation = models.PositiveSmallIntegerField(default=0, db_default=0)  # rises when lost nodes of it are replaced
    broken_at = models.DateTimeField(null=True, blank=True)  # since when it waits for others in lost nodes' places
    # When a node reported that its ranks lost a peer, and all nodes of this generation were asked for a beat.
    suspected_at = models.DateTimeField(null=True, blank=True)
    grown_at = models.DateTimeField(null=True, blank=True)  # when it last went on with more nodes than before
    # Of all its growths, by the formulas of jobs/matching/growth.py: starts, and work that was done again.
    growth_usd_micros = models.PositiveBigIntegerField(default=0, db_default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    running_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = AttemptQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="attempts_are_numbered"),
            models.UniqueConstraint(
                fields=["job", "slot"], condition=Q(state__in=sorted(ATTEMPT_LIVE)), name="one_live_attempt_per_slot"
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
    # NULL: the quote's price
    price_lock = models.ForeignKey(PriceLock, null=True, on_delete=models.PROTECT, related_name="+", db_index=False)
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
    # Spans of its meter, in milliseconds, that are not paid: done again, or spent waiting, by the loss of another node.
    unpaid: models.JSONField[Any, Any] = models.JSONField(
        default=list, blank=True, db_default=models.Value([], models.JSONField())
    )
    follows_generations = models.BooleanField(default=False, db_default=False)  # its program goes on in a later one
    follows_sizes = models.BooleanField(default=False, db_default=False)  # the same, in a gang of another size
    # Its attempt grows: its program waits for the gang's next generation, and until then it is none of the gang.
    is_joining = models.BooleanField(default=False, db_default=False)
    joined_generation = models.PositiveSmallIntegerField(null=True, blank=True)  # in which it joined; None: a first one
    # When another lease took its place in the same attempt, or the others went on without it.
    replaced_at = models.DateTimeField(null=True, blank=True)
    checkpoint_ms = models.PositiveBigIntegerField(null=True, blank=True)  # where the rule billed up to a checkpoint
    reserved_at = models.DateTimeField(auto_now_add=True)
    active_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = LeaseQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["attempt", "node_rank"], condition=Q(replaced_at=None), name="one_lease_per_rank"
            ),
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
            models.Index(
                fields=["reserved_at"],
                condition=Q(state__in=sorted(LEASE_LIVE), is_joining=True),
                name="lease_joining_since",
            ),
        ]

    def __str__(self) -> str:
        return f"lease {self.id} ({self.state})"

    @property
    def observed_ms(self) -> int:
        """How long the server saw it run, in milliseconds."""
        if self.running_at is None or self.observed_until is None:
            return 0
        return max(0, (self.observed_until - self.running_at) // timedelta(milliseconds=1))

    def paid_of(self, ms: int) -> int:
        """Of the first `ms` milliseconds of its meter, how many are paid; see jobs/running/generations.py."""
        unpaid = counted = 0
        for first, last, *_ in self.unpaid:  # in their order; where they overlap, each millisecond once
            start, end = max(first, counted), ms if last is None else min(last, ms)
            unpaid += max(0, end - start)
            counted = max(counted, end)
        return max(0, ms - unpaid)

    @property
    def end_reason(self) -> str:
        """Why it ended: as its attempt did, or for a reason of its own where the attempt went on without it, or where
        it was paid what it had saved by an attempt that is paid nothing (lifecycle.finish_attempt)."""
        if self.replaced_at is not None:
            return self.reported_reason
        reason, has_saved = self.attempt.reason, self.attempt.generation > 0 and self.checkpoint_ms is not None
        is_paid = has_saved and reason and REASONS[Reason(reason)].billable == Billable.NOTHING
        return Reason.GANG_BROKEN.value if is_paid else reason

    @property
    def payment_terms(self) -> PaymentTerms | None:
        """The terms of the token that pays, as its node has them; None: dollars."""
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
