"""Facts about how leases ended, what customers contest, and what providers were fined for."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F, Q

from billing.fields import AmountField
from billing.models.holding import SettlementShare
from billing.models.ledger import Asset
from billing.states import DISPUTE_MACHINE, DisputeState
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class EndRecord(models.Model):
    """How one lease ended, written in the same transaction and never changed: the facts of every later dispute."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    lease_id = models.UUIDField(unique=True)
    job_id = models.UUIDField(db_index=True)
    attempt = models.PositiveSmallIntegerField()
    node_id = models.UUIDField()
    customer_id = models.UUIDField()
    provider_id = models.UUIDField()
    reason = models.CharField(max_length=64)
    fault = models.CharField(max_length=16)
    message = models.TextField(blank=True)
    reported_reason = models.CharField(max_length=64, blank=True)  # by this lease's own agent
    exit_code = models.IntegerField(null=True, blank=True)
    claimed_ms = models.PositiveBigIntegerField()  # by the newest accepted receipt
    observed_ms = models.PositiveBigIntegerField()  # by the server
    checkpointed_ms = models.PositiveBigIntegerField()  # where the newest complete checkpoint was taken
    billable_ms = models.PositiveBigIntegerField()  # what is paid for
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_index=False)
    rate = AmountField()  # per hour; as the two below in base units of the asset
    claimed = AmountField()
    charged = AmountField()
    receipt_seq = models.PositiveBigIntegerField(default=0)
    receipt_digest = models.CharField(max_length=66, blank=True)
    last_seen_at = models.DateTimeField(null=True, blank=True)  # the server's last sight of it running
    ended_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(rate__gte=0, claimed__gte=0, charged__gte=0), name="end_amounts"),
        ]
        indexes = [models.Index(fields=["reason"], name="end_record_reason")]

    def __str__(self) -> str:
        return f"lease {self.lease_id} ended: {self.reason} ({self.fault})"


class DisputeQuerySet(models.QuerySet["Dispute"]):
    def open(self) -> DisputeQuerySet:
        """Disputes whose money is frozen."""
        return self.filter(state__in=[DisputeState.OPENED, DisputeState.ANSWERED])

    def of(self, owner_id: Any) -> DisputeQuerySet:
        """Disputes that this organisation is a side of."""
        return self.filter(Q(customer_id=owner_id) | Q(provider_id=owner_id))


class Dispute(models.Model):
    """A customer contests what one lease cost: provider's pay and platform's fee are frozen until it is over."""

    STATE_MACHINE = DISPUTE_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    share = models.OneToOneField(SettlementShare, on_delete=models.PROTECT, related_name="dispute")
    job_id = models.UUIDField(db_index=True)
    lease_id = models.UUIDField(db_index=True)
    customer_id = models.UUIDField(db_index=True)
    provider_id = models.UUIDField(db_index=True)
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_index=False)
    paid = AmountField()  # the provider's part of what is frozen
    fee = AmountField()  # the platform's
    state = models.CharField(max_length=16, choices=DisputeState.choices, default=DisputeState.OPENED)
    text = models.TextField()
    attachments: models.JSONField[Any, Any] = models.JSONField(default=list, blank=True)  # [{"name", "sha256"}]
    opened_by = models.CharField(max_length=120)
    opened_at = models.DateTimeField(default=clock.now)
    answer_until = models.DateTimeField()
    answer = models.TextField(blank=True)
    answer_attachments: models.JSONField[Any, Any] = models.JSONField(default=list, blank=True)
    answered_by = models.CharField(max_length=120, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)
    decide_until = models.DateTimeField(null=True, blank=True)
    to_customer = AmountField(null=True, blank=True)  # type: ignore[misc]
    to_provider = AmountField(null=True, blank=True)  # type: ignore[misc]
    to_platform = AmountField(null=True, blank=True)  # type: ignore[misc]
    decision = models.TextField(blank=True)
    decided_by = models.CharField(max_length=120, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)

    objects = DisputeQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=DisputeState.values), name="dispute_state_known"),
            models.CheckConstraint(condition=Q(paid__gte=0, fee__gte=0), name="dispute_amounts_nonnegative"),
            models.CheckConstraint(
                condition=(
                    Q(state="decided", to_customer__gte=0, to_provider__gte=0, to_platform__gte=0)
                    & Q(to_customer=F("paid") + F("fee") - F("to_provider") - F("to_platform"))
                )
                | (~Q(state="decided") & Q(to_customer=None, to_provider=None, to_platform=None)),
                name="dispute_split_exactly",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["opened", "answered"], closed_at=None)
                | Q(state__in=["decided", "withdrawn"], closed_at__isnull=False),
                name="dispute_closed_has_its_time",
            ),
        ]

    def __str__(self) -> str:
        return f"dispute of lease {self.lease_id} ({self.state})"

    @property
    def amount(self) -> int:
        """What is frozen, and what the decision has to split to the last unit."""
        return self.paid + self.fee


class Offence(models.Model):
    """One proven breach by a provider and what it cost it; its id is the evidence's, so that it counts once."""

    id = models.UUIDField(primary_key=True, editable=False)
    provider_id = models.UUIDField(db_index=True)
    customer_id = models.UUIDField(null=True, blank=True)
    job_id = models.UUIDField(null=True, blank=True)
    lease_id = models.UUIDField(null=True, blank=True)
    reason = models.CharField(max_length=64)
    evidence: models.JSONField[Any, Any] = models.JSONField(default=dict, blank=True)
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_index=False)
    penalty = AmountField()  # by the table
    taken = AmountField()  # what could be found
    compensated = AmountField()  # of it, what the customer got; the rest stays in the slash pool
    group_id = models.UUIDField(null=True, blank=True)  # of its transfers
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(penalty__gte=0, taken__gte=0, compensated__gte=0)
                & Q(taken__lte=F("penalty"), compensated__lte=F("taken")),
                name="offence_takes_at_most_its_penalty",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reason} by {self.provider_id}: {self.taken} of {self.penalty}"


class OffenceTaking(models.Model):
    """What an offence took from pay that was still inside its challenge window."""

    id = models.BigAutoField(primary_key=True)
    offence = models.ForeignKey(Offence, on_delete=models.PROTECT, related_name="takings")
    share = models.ForeignKey(SettlementShare, on_delete=models.PROTECT, related_name="takings")
    amount = AmountField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["offence", "share"], name="offence_takes_once_from_a_share"),
            models.CheckConstraint(condition=Q(amount__gt=0), name="offence_taking_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.amount} of lease {self.share.lease_id}"
