"""Money with a purpose: deposits, holds, settlements and their shares."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import F, Q

from billing.fields import AmountField
from billing.models.ledger import Asset, Transfer
from billing.states import HOLD_MACHINE, HoldState
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class Deposit(models.Model):
    """Money that entered for one owner; `reference` names its source and is used once."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner_id = models.UUIDField()
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_index=False)
    amount = AmountField()  # here and below: base units of the asset (micro-USD, or a token's)
    rail = models.CharField(max_length=16, default="operator")
    reference = models.CharField(max_length=200)
    actor = models.CharField(max_length=120)
    transfer = models.OneToOneField(Transfer, on_delete=models.PROTECT, related_name="deposit")
    created_at = models.DateTimeField(default=clock.now)
    row_digest = models.CharField(max_length=64, default="", editable=False)  # of all columns: see digest_rows.sql

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["rail", "reference"], name="deposit_once_per_reference"),
            models.CheckConstraint(condition=Q(amount__gt=0), name="deposit_amount_positive"),
            models.CheckConstraint(condition=~Q(reference=""), name="deposit_has_a_reference"),
        ]

    def __str__(self) -> str:
        return f"{self.rail} {self.reference}: {self.amount}"


class HoldQuerySet(models.QuerySet["Hold"]):
    def open(self) -> HoldQuerySet:
        """Holds whose money is still set aside."""
        return self.filter(state=HoldState.OPEN)


class Hold(models.Model):
    """What a customer's balance has set aside for one job; at most one is open per job."""

    STATE_MACHINE = HOLD_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner_id = models.UUIDField()
    job_id = models.UUIDField(db_index=True)
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False)
    amount = AmountField()
    state = models.CharField(max_length=16, choices=HoldState.choices, default=HoldState.OPEN)
    created_at = models.DateTimeField(default=clock.now)
    closed_at = models.DateTimeField(null=True, blank=True)
    row_digest = models.CharField(max_length=64, default="", editable=False)  # of all columns: see digest_rows.sql

    objects = HoldQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job_id"], condition=Q(state="open"), name="one_open_hold_per_job"),
            models.CheckConstraint(condition=Q(state__in=HoldState.values), name="hold_state_known"),
            models.CheckConstraint(condition=Q(amount__gt=0), name="hold_amount_positive"),
            models.CheckConstraint(
                condition=Q(state="open", closed_at=None) | (~Q(state="open") & Q(closed_at__isnull=False)),
                name="hold_closed_has_its_time",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount} for job {self.job_id} ({self.state})"


class Settlement(models.Model):
    """How one job's hold was split, exactly: charged + refunded = held, fee + paid = charged.

    One final one a job. A job that goes on for long has others before it, each with a hold of its own.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job_id = models.UUIDField(db_index=True)
    is_final = models.BooleanField(default=True, db_default=True)
    hold = models.OneToOneField(Hold, on_delete=models.PROTECT, related_name="settlement")
    owner_id = models.UUIDField()
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False)
    fee_bps = models.PositiveIntegerField()
    held = AmountField()
    charged = AmountField()
    fee = AmountField()
    paid = AmountField()
    refunded = AmountField()
    challenge_until = models.DateTimeField()
    created_at = models.DateTimeField(default=clock.now)
    row_digest = models.CharField(max_length=64, default="", editable=False)  # of all columns: see digest_rows.sql

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job_id"], condition=Q(is_final=True), name="one_final_settlement_per_job"),
            models.CheckConstraint(
                condition=Q(charged__gte=0, fee__gte=0, paid__gte=0, refunded__gte=0),
                name="settlement_amounts_nonnegative",
            ),
            models.CheckConstraint(
                condition=Q(held=F("charged") + F("refunded")),
                name="settlement_splits_the_hold",
            ),
            models.CheckConstraint(
                condition=Q(charged=F("fee") + F("paid")),
                name="settlement_splits_the_charge",
            ),
            models.CheckConstraint(condition=Q(fee_bps__lte=10_000), name="settlement_fee_bps_range"),
        ]

    def __str__(self) -> str:
        return f"job {self.job_id}: {self.charged} of {self.held}"


class SettlementShareQuerySet(models.QuerySet["SettlementShare"]):
    def ripe(self, now: datetime) -> SettlementShareQuerySet:
        """Shares whose challenge window is over, that nobody contests and that are not released yet."""
        return self.filter(released_at=None, is_disputed=False, challenge_until__lte=now)


class SettlementShare(models.Model):
    """What one lease earned its provider; spendable once the challenge window is over. One a lease and settlement."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    settlement = models.ForeignKey(Settlement, on_delete=models.PROTECT, related_name="shares")
    lease_id = models.UUIDField(db_index=True)
    provider_id = models.UUIDField()  # owner of the provider's accounts
    charged = AmountField()
    fee = AmountField()
    paid = AmountField()
    challenge_until = models.DateTimeField()
    released_at = models.DateTimeField(null=True, blank=True)
    is_disputed = models.BooleanField(
        default=False, db_default=False
    )  # a dispute or an offence decides what becomes of it
    row_digest = models.CharField(max_length=64, default="", editable=False)  # of all columns: see digest_rows.sql

    objects = SettlementShareQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lease_id", "settlement"], name="one_share_per_lease_and_settlement"),
            models.CheckConstraint(
                condition=Q(charged__gte=0, fee__gte=0, paid__gte=0),
                name="share_amounts_nonnegative",
            ),
            models.CheckConstraint(
                condition=Q(charged=F("fee") + F("paid")),
                name="share_splits_its_charge",
            ),
        ]
        indexes = [
            models.Index(fields=["challenge_until"], condition=Q(released_at=None), name="share_waiting_for_release"),
            models.Index(fields=["provider_id", "challenge_until"], name="share_of_provider"),
        ]

    def __str__(self) -> str:
        return f"lease {self.lease_id}: {self.paid} of {self.charged}"
