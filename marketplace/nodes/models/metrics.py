"""What nodes measure of themselves and of leases, as time series."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from marketplace.nodes.models.node import Node

SECONDS_PER_MINUTE = 60
SECONDS_PER_HOUR = 3600


class Metric(models.Model):
    """What a node measured of itself, or of one lease, within a minute or (later) an hour: series -> [mean, highest].

    A node's devices are in its own row, as "UUID/series". Figures of a lease are accepted from that lease's node only.
    """

    id = models.BigAutoField(primary_key=True)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="metrics")
    lease_id = models.UUIDField(null=True, blank=True)  # None: the node itself
    at = models.DateTimeField()  # the begin
    seconds = models.PositiveSmallIntegerField(choices=[(SECONDS_PER_MINUTE, "minute"), (SECONDS_PER_HOUR, "hour")])
    values: models.JSONField[Any, Any] = models.JSONField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["node", "lease_id", "seconds", "at"], nulls_distinct=False, name="metric_once"
            ),
            models.CheckConstraint(
                condition=Q(seconds__in=[SECONDS_PER_MINUTE, SECONDS_PER_HOUR]), name="metric_minute_or_hour"
            ),
        ]
        indexes = [models.Index(fields=["seconds", "at"], name="metric_age")]

    def __str__(self) -> str:
        return f"{self.seconds} s of {self.node_id} from {self.at}"
