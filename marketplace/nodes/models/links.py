"""What lies between two nodes of a fabric, and the probes that measure it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import models
from django.db.models import Q

from marketplace.foundation.ids import new_id
from marketplace.nodes.models.node import Node
from marketplace.nodes.states import PROBE_MACHINE, ProbeState

LINK_WHY_MAX = 700


class FabricLink(models.Model):
    """What lies between two nodes of one provider's fabric, as they measured it themselves; `a` has the smaller id."""

    a = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="links_as_a")
    b = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="links_as_b")
    is_reachable = models.BooleanField(default=False)  # each reached the other, when it was measured
    round_trip_us = models.PositiveIntegerField(null=True, blank=True)
    bandwidth_bytes_per_second = models.PositiveBigIntegerField(null=True, blank=True)  # of the slower direction
    measured_at = models.DateTimeField(null=True, blank=True)
    why = models.CharField(max_length=LINK_WHY_MAX, blank=True)  # what is wrong with it, for the provider
    failures_in_row = models.PositiveIntegerField(default=0)
    next_probe_at = models.DateTimeField(null=True, blank=True)  # not before; None: never probed

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["a", "b"], name="one_link_per_pair"),
            models.CheckConstraint(condition=Q(a__lt=models.F("b")), name="link_in_order"),
            models.CheckConstraint(
                condition=Q(is_reachable=False)
                | Q(measured_at__isnull=False, round_trip_us__isnull=False, bandwidth_bytes_per_second__isnull=False),
                name="reachable_link_has_figures",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.a.name} - {self.b.name}"

    @property
    def condition(self) -> str:
        """One of: good, failed, or not measured yet."""
        if self.measured_at is None:
            return "unmeasured"
        return "good" if self.is_reachable else "failed"

    def other(self, node_id: UUID) -> Node:
        """The end that is not this one."""
        return self.b if node_id == self.a_id else self.a


class LinkProbe(models.Model):
    """Both ends of a link are to measure it now; only the newest probe of a link is kept."""

    STATE_MACHINE = PROBE_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    link = models.ForeignKey(FabricLink, on_delete=models.CASCADE, related_name="probes")
    state = models.CharField(max_length=16, choices=ProbeState.choices, default=ProbeState.DEMANDED)
    reason = models.CharField(max_length=64, blank=True)
    listener = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")  # the other end connects first
    secret = models.CharField(max_length=64, blank=True)  # shared by both nodes; empty once the probe is over
    ports: models.JSONField[Any, Any] = models.JSONField(default=dict)  # node id -> its port
    reports: models.JSONField[Any, Any] = models.JSONField(default=dict)  # node id -> protocol.LinkReport
    demanded_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["link"], condition=Q(state=ProbeState.DEMANDED), name="one_live_probe_per_link"
            ),
            models.CheckConstraint(condition=Q(state__in=ProbeState.values), name="link_probe_state_known"),
        ]
        indexes = [models.Index(fields=["demanded_at"], condition=Q(state=ProbeState.DEMANDED), name="link_probe_live")]

    def __str__(self) -> str:
        return f"probe of {self.link} ({self.state})"
