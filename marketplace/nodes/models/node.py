"""A machine, its devices, and the terms on which they are rented."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Q

from marketplace.foundation.ids import new_id
from marketplace.nodes.models.providers import Provider
from marketplace.nodes.querysets import DeviceQuerySet, NodeQuerySet, OfferQuerySet
from marketplace.nodes.states import NODE_MACHINE, NodeState
from provider_agent.protocol import (
    FAULT_CHARACTERS_MAX,
    REASON_CHARACTERS_MAX,
    ROLLBACK_CHARACTERS_MAX,
    VERSION_CHARACTERS_MAX,
    DeviceKind,
)

if TYPE_CHECKING:
    from marketplace.nodes.models.links import FabricLink


class Node(models.Model):
    """One enrolled machine, known by its two public keys and by nothing that it says."""

    STATE_MACHINE = NODE_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    provider = models.ForeignKey(Provider, on_delete=models.PROTECT, related_name="nodes")
    name = models.CharField(max_length=64)
    state = models.CharField(max_length=16, choices=NodeState.choices, default=NodeState.PENDING)
    transport_public_key = models.CharField(max_length=64, unique=True)
    receipt_address = models.CharField(max_length=42, unique=True)
    executor = models.CharField(max_length=16)
    agent_version = models.CharField(max_length=40)
    protocol = models.PositiveSmallIntegerField()
    facts: models.JSONField[Any, Any] = models.JSONField(default=dict)
    region = models.CharField(max_length=32, default="unknown")
    fabric = models.CharField(max_length=64, blank=True)
    fabric_address = models.CharField(max_length=64, blank=True)
    fabric_key = models.CharField(max_length=64, blank=True)  # X25519, hex: what its gangs' members know it by
    memory_mib = models.PositiveBigIntegerField()
    cpu_count = models.PositiveIntegerField()
    boot_id = models.UUIDField(null=True, blank=True)
    synced_ms = models.BigIntegerField(default=0)  # when the node signed the newest sync that was taken in, Unix ms
    last_seen_at = models.DateTimeField(null=True, blank=True)
    measured_at = models.DateTimeField(null=True, blank=True)
    drain_requested_at = models.DateTimeField(null=True, blank=True)  # outlives an outage: it comes back draining
    drain_reason = models.CharField(max_length=REASON_CHARACTERS_MAX, blank=True)  # the newest drain's, for people
    schedule: models.JSONField[Any, Any] = models.JSONField(default=dict)  # when it is there; see schedule.py
    ghosts_killed = models.PositiveBigIntegerField(default=0)  # programs without a lease that its agent ended
    failures = models.PositiveIntegerField(default=0)  # attempts that ended by its fault
    successes = models.PositiveIntegerField(default=0)
    wanted_check_id = models.UUIDField(null=True, blank=True)  # the live check: what sync tells the node
    wanted_probe_id = models.UUIDField(null=True, blank=True)  # the live probe of a link that it has not reported yet
    next_check_at = models.DateTimeField(null=True, blank=True)  # not before; None: never measured
    verified_at = models.DateTimeField(null=True, blank=True)  # the newest check that it passed
    suspended_at = models.DateTimeField(null=True, blank=True)  # nothing new is placed there until a check passes
    checks_passed = models.PositiveIntegerField(default=0)
    checks_failed = models.PositiveIntegerField(default=0)
    checks_failed_in_row = models.PositiveIntegerField(default=0)
    update_mode = models.CharField(max_length=8, default="none")  # auto, manual; none: it cannot
    wanted_version = models.CharField(max_length=VERSION_CHARACTERS_MAX, blank=True)  # of its agent: what sync tells
    agent_version_at = models.DateTimeField(null=True, blank=True)  # when the agent's version changed last
    rolled_back_version = models.CharField(max_length=VERSION_CHARACTERS_MAX, blank=True)  # did not check in there
    rolled_back_reason = models.CharField(max_length=ROLLBACK_CHARACTERS_MAX, blank=True)
    rolled_back_at = models.DateTimeField(null=True, blank=True)
    enrolled_at = models.DateTimeField(auto_now_add=True)

    objects = NodeQuerySet.as_manager()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(state__in=NodeState.values), name="node_state_known")]
        indexes = [models.Index(fields=["state", "last_seen_at"], name="node_liveness")]

    def __str__(self) -> str:
        return f"{self.name} ({self.state})"

    @property
    def links(self) -> list[tuple[Node, FabricLink]]:
        """Each node of its fabric that it was to be measured with and that is still there, with their link."""
        ends = [(link.b, link) for link in self.links_as_a.all()]
        ends += [(link.a, link) for link in self.links_as_b.all()]
        there = [(peer, link) for peer, link in ends if peer.state != NodeState.RETIRED]
        return sorted(there, key=lambda entry: (entry[0].name, entry[0].pk))


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
    fault = models.CharField(max_length=FAULT_CHARACTERS_MAX, blank=True)  # why it is not, as far as its agent knows

    objects = DeviceQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["node", "uuid"], name="device_once_per_node"),
            models.UniqueConstraint(
                fields=["uuid"], condition=Q(kind=DeviceKind.GPU.value, is_healthy=True), name="gpu_sold_once"
            ),
            models.CheckConstraint(condition=Q(memory_mib__gt=0), name="device_has_memory"),
            models.CheckConstraint(condition=Q(kind__in=[kind.value for kind in DeviceKind]), name="device_kind_known"),
        ]
        ordering = ["node", "index"]

    def __str__(self) -> str:
        return f"{self.model} #{self.index} of {self.node.name}"


class Offer(models.Model):
    """The terms on which the devices of a node may be rented; at most one is open per node."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="offers")
    price_usd_micros_per_device_hour = models.PositiveBigIntegerField()
    seconds_min = models.PositiveIntegerField(default=60)
    seconds_max = models.PositiveIntegerField(default=7 * 24 * 3600)
    region = models.CharField(max_length=32, default="unknown")
    available_until = models.DateTimeField(null=True, blank=True)
    is_open = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = OfferQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["node"], condition=Q(is_open=True), name="one_open_offer_per_node"),
            models.CheckConstraint(condition=Q(price_usd_micros_per_device_hour__gt=0), name="offer_has_a_price"),
            models.CheckConstraint(
                condition=Q(seconds_max__gte=models.F("seconds_min")), name="offer_duration_makes_sense"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.node.name}: {self.price_usd_micros_per_device_hour} micro-USD per device and hour"
