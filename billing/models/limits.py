"""How much may be spent, and what is promised already."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from billing.fields import AmountField
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class Period(models.TextChoices):
    """month: of the calendar, UTC. job: each one by itself."""

    MONTH = "month"
    JOB = "job"


class SpendLimit(models.Model):
    """The most that an organisation, or one of its members, may spend a month or on one job."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner_id = models.UUIDField()
    member_id = models.UUIDField(null=True, blank=True)  # None: of the whole organisation
    period = models.CharField(max_length=8, choices=Period.choices, default=Period.MONTH)
    amount = AmountField()  # micro-USD
    set_by = models.CharField(max_length=120)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["owner_id", "member_id", "period"], name="one_spend_limit_each", nulls_distinct=False
            ),
            models.CheckConstraint(condition=Q(period__in=Period.values), name="spend_limit_period_known"),
            models.CheckConstraint(condition=Q(amount__gte=0), name="spend_limit_nonnegative"),
        ]

    def __str__(self) -> str:
        return f"{self.amount} a {self.period} for {self.member_id or self.owner_id}"


class Commitment(models.Model):
    """What one job may cost while it lives, and what it did cost once it has ended. In micro-USD."""

    job_id = models.UUIDField(primary_key=True, editable=False)
    owner_id = models.UUIDField()
    member_id = models.UUIDField(null=True, blank=True)
    amount = AmountField()
    charged = AmountField(null=True, blank=True)  # type: ignore[misc]
    opened_at = models.DateTimeField(default=clock.now)
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(closed_at=None, charged=None) | Q(closed_at__isnull=False, charged__gte=0),
                name="commitment_closed_with_its_charge",
            ),
            models.CheckConstraint(condition=Q(amount__gte=0), name="commitment_nonnegative"),
        ]
        indexes = [models.Index(fields=["owner_id", "closed_at"], name="commitment_of_owner")]

    def __str__(self) -> str:
        return f"job {self.job_id}: {self.amount if self.charged is None else self.charged}"
