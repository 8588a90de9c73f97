"""The GPUs and CPU shares of a node."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from marketplace.foundation import clock
from marketplace.foundation.ids import new_id
from marketplace.nodes.models.node import Node, suspect_before
from marketplace.nodes.states import NodeState
from provider_agent.protocol import FAULT_CHARACTERS_MAX, DeviceKind


class DeviceQuerySet(models.QuerySet["Device"]):
    def rentable(self) -> DeviceQuerySet:
        """Healthy, measured devices of nodes that are online, neither suspended nor suspected of being offline.

        `jobs` has the leases.
        """
        online = self.filter(
            is_healthy=True,
            node__state=NodeState.ONLINE,
            node__measured_at__isnull=False,
            node__suspended_at=None,
        )
        return online.exclude(flops_per_second={}).exclude(node__last_seen_at__lt=suspect_before(clock.now()))


class Device(models.Model):
    """One rentable GPU, or one CPU share."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="devices")
    uuid = models.CharField(max_length=96)
    index = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=8, choices=[(kind.value, kind.value) for kind in DeviceKind])
    model = models.CharField(max_length=120)
    memory_mib = models.PositiveBigIntegerField()
    details: models.JSONField[Any, Any] = models.JSONField(default=dict)
    flops_per_second: models.JSONField[Any, Any] = models.JSONField(default=dict)  # dtype -> FLOP/s that counts
    claimed_flops_per_second: models.JSONField[Any, Any] = models.JSONField(default=dict)  # what its agent reported
    shown_flops_per_second = models.FloatField(null=True, blank=True)  # float32, by the newest check that was passed
    memory_bytes_per_second = models.FloatField(default=0)
    is_healthy = models.BooleanField(default=True)
    fault = models.CharField(max_length=FAULT_CHARACTERS_MAX, blank=True)  # why it is not, as its agent reports

    # Its UUID is this node's, from when it was first healthy here until the node is retired or the card is enrolled in
    # another node of the same provider: a fault is no reason to lose it to somebody else.
    is_claimed = models.BooleanField(default=True, db_default=True)

    objects = DeviceQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["node", "uuid"], name="device_once_per_node"),
            models.UniqueConstraint(
                fields=["uuid"], condition=Q(kind=DeviceKind.GPU.value, is_claimed=True), name="gpu_claimed_once"
            ),
            models.CheckConstraint(condition=Q(is_healthy=False) | Q(is_claimed=True), name="healthy_device_claimed"),
            models.CheckConstraint(condition=Q(memory_mib__gt=0), name="device_has_memory"),
            models.CheckConstraint(condition=Q(kind__in=[kind.value for kind in DeviceKind]), name="device_kind_known"),
        ]
        ordering = ["node", "index"]

    def __str__(self) -> str:
        return f"{self.model} #{self.index} of {self.node.name}"
