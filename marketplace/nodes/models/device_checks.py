"""Work that is demanded of a node, to see what it can do."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from marketplace.foundation.ids import new_id
from marketplace.nodes.models.node import Node
from marketplace.nodes.states import CHECK_LIVE, CHECK_MACHINE, CheckState


class Check(models.Model):
    """Work demanded of all devices of a node at once, and what came of it. Times are the server's alone."""

    STATE_MACHINE = CHECK_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="checks")
    state = models.CharField(max_length=16, choices=CheckState.choices, default=CheckState.DEMANDED)
    reason = models.CharField(max_length=64, blank=True)
    is_enforced = models.BooleanField(default=False)  # whether failing had consequences
    seed = models.CharField(max_length=64)
    plan: models.JSONField[Any, Any] = models.JSONField(default=dict)  # device UUID -> calibration.DevicePlan
    roots: models.JSONField[Any, Any] = models.JSONField(default=dict)  # device UUID -> commitments
    openings: models.JSONField[Any, Any] = models.JSONField(default=dict)  # device UUID -> [[round, block], ...]
    revealed: models.JSONField[Any, Any] = models.JSONField(default=dict)  # "UUID index" -> fault, or "" for none
    recalls: models.JSONField[Any, Any] = models.JSONField(default=list)  # of each step: key, told_at, seconds, faults
    findings: models.JSONField[Any, Any] = models.JSONField(default=list)  # protocol.Finding
    demanded_at = models.DateTimeField()
    begun_at = models.DateTimeField(null=True, blank=True)
    committed_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["node"], condition=Q(state__in=CHECK_LIVE), name="one_live_check_per_node"),
            models.CheckConstraint(condition=Q(state__in=CheckState.values), name="check_state_known"),
        ]
        indexes = [
            models.Index(fields=["node", "-demanded_at"], name="check_of_node"),
            models.Index(fields=["demanded_at"], condition=Q(state__in=CHECK_LIVE), name="check_live"),
        ]
        ordering = ["-demanded_at"]

    def __str__(self) -> str:
        return f"check of {self.node.name} ({self.state})"
