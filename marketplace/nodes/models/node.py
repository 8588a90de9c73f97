"""An enrolled machine."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django.db import models
from django.db.models import Q

from marketplace.foundation.ids import new_id
from marketplace.foundation.moments import within_calendar
from marketplace.nodes.models.providers import Provider
from marketplace.nodes.states import NODE_MACHINE, NodeState
from provider_agent.protocol import (
    BEAT_SECONDS_IDLE,
    LOST_GRACE_SECONDS,
    MISSES_UNTIL_SUSPECT,
    REASON_CHARACTERS_MAX,
    ROLLBACK_CHARACTERS_MAX,
    VERSION_CHARACTERS_MAX,
)

PLAIN_PROCESS: Final = "process"  # the executor that isolates nothing
SUSPECT_SECONDS: Final = MISSES_UNTIL_SUSPECT * BEAT_SECONDS_IDLE + LOST_GRACE_SECONDS


def suspect_before(now: datetime) -> datetime:
    """A node that was last seen before this time has missed two heartbeats: nothing new is placed there."""
    return now - timedelta(seconds=SUSPECT_SECONDS)


def isolation_of(executor: str, reported: object) -> str:
    """What is between programs and this node's kernel: a plain process has nothing, whatever its agent reports.

    An agent with containers that reports nothing of the kind has at least the engine's own.
    """
    if executor == PLAIN_PROCESS:
        return "none"
    return "gvisor" if reported == "gvisor" else "runc"


class NodeQuerySet(models.QuerySet["Node"]):
    def alive(self) -> NodeQuerySet:
        """Nodes that should be beating."""
        return self.filter(state__in=[NodeState.ONLINE, NodeState.DRAINING])

    def of(self, organisation: Any) -> NodeQuerySet:
        """Nodes that this organisation provides."""
        return self.filter(provider__organisation=organisation)


class Node(models.Model):
    """One enrolled machine, known by its two public keys and by nothing that it reports."""

    STATE_MACHINE = NODE_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    provider = models.ForeignKey(Provider, on_delete=models.PROTECT, related_name="nodes")
    name = models.CharField(max_length=64)
    state = models.CharField(max_length=16, choices=NodeState.choices, default=NodeState.PENDING)
    transport_public_key = models.CharField(max_length=64, unique=True)
    receipt_address = models.CharField(max_length=42, unique=True)
    executor = models.CharField(max_length=16)
    # Though nothing isolates programs there, its provider takes those of other organisations too.
    allows_strangers = models.BooleanField(default=False, db_default=False)
    agent_version = models.CharField(max_length=40)
    protocol = models.PositiveSmallIntegerField()
    facts: models.JSONField[Any, Any] = models.JSONField(default=dict)
    region = models.CharField(max_length=32, default="unknown")
    fabric = models.CharField(max_length=64, blank=True)
    fabric_address = models.CharField(max_length=64, blank=True)
    fabric_key = models.CharField(max_length=64, blank=True)  # X25519, hex: its public key in its gangs' overlays
    memory_mib = models.PositiveBigIntegerField()
    cpu_count = models.PositiveIntegerField()
    boot_id = models.UUIDField(null=True, blank=True)
    synced_ms = models.BigIntegerField(default=0)  # when the node signed the newest sync that was taken in, Unix ms
    # The same of the newest change of its price, hours or standing.
    changed_ms = models.BigIntegerField(default=0, db_default=0)
    last_seen_at = models.DateTimeField(null=True, blank=True)
    measured_at = models.DateTimeField(null=True, blank=True)
    drain_requested_at = models.DateTimeField(null=True, blank=True)  # outlives an outage: it comes back draining
    drain_reason = models.CharField(max_length=REASON_CHARACTERS_MAX, blank=True)  # the newest drain's, for people
    schedule: models.JSONField[Any, Any] = models.JSONField(default=dict)  # its opening hours; see offering/schedule.py
    ghosts_killed = models.PositiveBigIntegerField(default=0)  # programs without a lease that its agent ended
    failures = models.PositiveIntegerField(default=0)  # attempts that ended by its fault
    successes = models.PositiveIntegerField(default=0)
    wanted_check_id = models.UUIDField(null=True, blank=True)  # the live check: sent to the node by sync
    wanted_probe_id = models.UUIDField(null=True, blank=True)  # the live probe of a link that it has not reported yet
    next_check_at = models.DateTimeField(null=True, blank=True)  # not before; None: never measured
    verified_at = models.DateTimeField(null=True, blank=True)  # the newest check that it passed
    suspended_at = models.DateTimeField(null=True, blank=True)  # nothing new is placed there until a check passes
    checks_passed = models.PositiveIntegerField(default=0)
    checks_failed = models.PositiveIntegerField(default=0)
    checks_failed_in_row = models.PositiveIntegerField(default=0)
    update_mode = models.CharField(max_length=8, default="none")  # auto, manual; none: it cannot
    wanted_version = models.CharField(max_length=VERSION_CHARACTERS_MAX, blank=True)  # of its agent: sync sends it
    agent_version_at = models.DateTimeField(null=True, blank=True)  # when the agent's version changed last
    rolled_back_version = models.CharField(max_length=VERSION_CHARACTERS_MAX, blank=True)  # which it did not run with
    rolled_back_reason = models.CharField(max_length=ROLLBACK_CHARACTERS_MAX, blank=True)
    rolled_back_at = models.DateTimeField(null=True, blank=True)
    enrolled_at = models.DateTimeField(auto_now_add=True)

    objects = NodeQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=NodeState.values), name="node_state_known"),
            within_calendar("rolled_back_at", name="node_rollback_within_calendar"),
        ]
        indexes = [models.Index(fields=["state", "last_seen_at"], name="node_liveness")]

    def __str__(self) -> str:
        return f"{self.name} ({self.state})"

    @property
    def isolation(self) -> str:
        """none, runc or gvisor."""
        return isolation_of(self.executor, self.facts.get("isolation"))
