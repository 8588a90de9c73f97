"""What a token costs for one job after its quote: each price that took the place of another, and what it waits for."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from billing.fields import AmountField
from jobs.models.demand import Job
from jobs.payment.price_rules import PriceReason
from jobs.payment.terms import Payment
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id

PRICE_REASONS = [(reason.value, reason.value) for reason in PriceReason]


class PriceLock(models.Model):
    """A price at which a job continues, from its time until the next; never changed. Before the first: the quote's.

    What the job's ended leases were charged before the price was changed is at theirs; the rest of the cap is at this.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="price_locks")
    number = models.PositiveIntegerField()
    usd_micros_per_token = AmountField()
    source = models.CharField(max_length=40)
    observed_at = models.DateTimeField()
    reason = models.CharField(max_length=16, choices=PRICE_REASONS)
    actor = models.CharField(max_length=120, default="system")
    attempts_before = models.PositiveSmallIntegerField(default=0)  # that were priced otherwise
    charged_usd_micros = models.PositiveBigIntegerField(default=0)  # for those, in all
    charged_units = AmountField(default=0)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="price_locks_are_numbered"),
            models.CheckConstraint(condition=Q(usd_micros_per_token__gt=0), name="price_lock_has_a_price"),
            models.CheckConstraint(
                condition=Q(reason__in=[reason.value for reason in PriceReason]), name="price_lock_reason_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.usd_micros_per_token} micro-USD a token for {self.job_id} ({self.reason})"

    def payment_in(self, asset: str, scale: int) -> Payment:
        """The asset at this price."""
        return Payment(asset, scale, int(self.usd_micros_per_token), self.source, self.observed_at)


class PriceHalt(models.Model):
    """A waiting job is not placed: its customer has to confirm this price, or no price is known (then it is NULL).

    It is there as long as that is so; a reason of the wait, and no state of the job.
    """

    job = models.OneToOneField(Job, primary_key=True, on_delete=models.CASCADE, related_name="price_halt")
    usd_micros_per_token = AmountField(null=True)  # type: ignore[misc] # its own type knows no NULL
    source = models.CharField(max_length=40, blank=True)
    observed_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(usd_micros_per_token=None, observed_at=None, source="")
                | (
                    Q(usd_micros_per_token__isnull=False, usd_micros_per_token__gt=0, observed_at__isnull=False)
                    & ~Q(source="")
                ),
                name="price_halt_asks_for_a_whole_price",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} waits for a price"
