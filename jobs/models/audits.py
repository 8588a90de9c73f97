"""What came of computing answers again: one row for each replica that computed one answer again."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.models.leases import Lease
from jobs.models.serving import Endpoint
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class Audit(models.Model):
    """One verdict on one answer; never changed. Where `checked_by` is the lease itself, a gateway saw it with its own
    eyes: no commitment, or a spoilt one that it called right."""

    class Verdict(models.TextChoices):
        MATCH = "match"
        MISMATCH = "mismatch"
        UNCLEAR = "unclear"  # a mismatch that no other replica could compute

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    request_id = models.UUIDField()
    endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="audits")
    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="audits")  # whose answer it was
    checked_by = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="audits_made")
    verdict = models.CharField(max_length=16, choices=Verdict.choices)
    detail = models.CharField(max_length=2000, blank=True)
    at = models.DateTimeField()  # by the gateway's clock
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["request_id", "lease", "checked_by"], name="audit_once_a_checker"),
            models.CheckConstraint(
                condition=Q(verdict__in=["match", "mismatch", "unclear"]), name="audit_verdict_known"
            ),
        ]
        indexes = [
            models.Index(fields=["created_at"], condition=Q(verdict="match"), name="audit_to_forget"),
        ]

    def __str__(self) -> str:
        return f"{self.verdict} of request {self.request_id}"


class WrongReplica(models.Model):
    """A lease that was ended because its answers were not those of its model, and the audits that prove it."""

    lease = models.OneToOneField(Lease, primary_key=True, on_delete=models.PROTECT, related_name="wrong")
    node = models.ForeignKey("nodes.Node", on_delete=models.PROTECT, related_name="wrong_replicas")
    because = models.CharField(max_length=500)
    audits = models.ManyToManyField(Audit, related_name="+")
    created_at = models.DateTimeField(default=clock.now)

    def __str__(self) -> str:
        return f"{self.lease_id}: {self.because}"
