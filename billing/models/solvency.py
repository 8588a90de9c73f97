"""What was published as owed, and the tree behind it, so that proofs of old reports can still be given."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from billing.fields import SumField
from billing.models.ledger import Asset
from marketplace.foundation import clock


class SolvencyReport(models.Model):
    """One signed report; the number after it names it by its commitment. Never changed, never deleted."""

    number = models.PositiveBigIntegerField(primary_key=True)
    body: models.JSONField[Any, Any] = models.JSONField()  # what is signed
    signature = models.CharField(max_length=88)
    server_public_key = models.CharField(max_length=64)
    commitment = models.CharField(max_length=64, unique=True)
    last_seq = models.PositiveBigIntegerField()  # the newest transfer that counts
    secret = models.BinaryField()  # from which every account's salt follows; new for each report
    is_daily = models.BooleanField()  # the first of its day: its tree is kept for longer
    at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(number__gte=1), name="solvency_report_numbered")]

    def __str__(self) -> str:
        return f"{self.number}: {self.commitment}"


class SolvencyChunk(models.Model):
    """Neighbouring leaves of one tree, and the node above them. Never changed; deleted when proofs are no longer given.

    `leaves`: for each the account's id, its amount and its hash; see `billing.solvency.tree`.
    """

    id = models.BigAutoField(primary_key=True)
    report = models.ForeignKey(SolvencyReport, on_delete=models.PROTECT, related_name="chunks", db_index=False)
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False)
    number = models.PositiveIntegerField()  # from the left
    first_owner = models.BinaryField()  # the key by which its first leaf is ordered
    hash = models.BinaryField()
    sum = SumField()
    leaves = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["report", "asset", "number"], name="solvency_chunk_once"),
            models.CheckConstraint(condition=Q(sum__gt=0), name="solvency_chunk_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.report_id}/{self.asset_id}/{self.number}"
