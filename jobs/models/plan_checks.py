"""What the planner said of a training beside what was measured."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.models.demand import Job
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Provider


class PlanCheck(models.Model):
    """Of one completed, paid training. Measured figures are the node's words, within what the server knows.

    A figure that is missing is null on both sides; `why` says what was reported that cannot be, or why nothing was
    compared.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="plan_check")
    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="+")
    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, related_name="+", db_index=False)
    is_own = models.BooleanField(default=False)  # on a node of the organisation's own
    family = models.CharField(max_length=32, blank=True)
    parameters = models.PositiveBigIntegerField(default=0)
    model_digest = models.CharField(max_length=64, blank=True)  # of what its shape follows from
    device_kind = models.CharField(max_length=8, blank=True)
    device_model = models.CharField(max_length=120, blank=True)
    method = models.CharField(max_length=8, blank=True)
    strategy = models.CharField(max_length=16, blank=True)
    ranks = models.PositiveIntegerField(default=1)
    nodes = models.PositiveIntegerField(default=1)
    planned_peak_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    measured_peak_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    planned_seconds = models.FloatField(null=True, blank=True)  # of a step
    measured_seconds = models.FloatField(null=True, blank=True)
    why = models.CharField(max_length=200, blank=True)
    ended_at = models.DateTimeField()  # the job
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(planned_peak_bytes=None, measured_peak_bytes=None)
                | Q(planned_peak_bytes__gt=0, measured_peak_bytes__gt=0),
                name="plan_check_has_both_peaks",
            ),
            models.CheckConstraint(
                condition=Q(planned_seconds=None, measured_seconds=None)
                | Q(planned_seconds__gt=0, measured_seconds__gt=0),
                name="plan_check_has_both_times",
            ),
        ]
        indexes = [
            models.Index(fields=["device_kind", "method", "-ended_at"], name="plan_check_alike"),
            models.Index(fields=["ended_at"], name="plan_check_by_age"),
        ]

    def __str__(self) -> str:
        return f"plan of {self.job_id}, checked"
