"""Supply: providers, their tokens, nodes, devices and offers."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from marketplace.accounts.models import Organisation
from marketplace.foundation.ids import new_id
from marketplace.nodes.querysets import DeviceQuerySet, NodeQuerySet, OfferQuerySet
from marketplace.nodes.states import NODE_MACHINE, NodeState
from provider_agent.protocol import DeviceKind


class Provider(models.Model):
    """An organisation's selling side."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.OneToOneField(Organisation, on_delete=models.PROTECT, related_name="provider")
    display_name = models.CharField(max_length=120)
    contact_email = models.EmailField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.display_name


class EnrolmentToken(models.Model):
    """Lets one node enrol, once, within the hour. Only its hash is kept."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, related_name="enrolment_tokens")
    prefix = models.CharField(max_length=12)
    token_hash = models.CharField(max_length=64, unique=True)
    note = models.CharField(max_length=120, blank=True)
    created_by = models.CharField(max_length=120)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    node = models.OneToOneField("Node", null=True, blank=True, on_delete=models.SET_NULL, related_name="token")

    def __str__(self) -> str:
        return f"{self.prefix}... of {self.provider}"


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
    memory_mib = models.PositiveBigIntegerField()
    cpu_count = models.PositiveIntegerField()
    boot_id = models.UUIDField(null=True, blank=True)
    synced_ms = models.BigIntegerField(default=0)  # when the node signed the newest sync that was taken in, Unix ms
    last_seen_at = models.DateTimeField(null=True, blank=True)
    measured_at = models.DateTimeField(null=True, blank=True)
    drain_requested_at = models.DateTimeField(null=True, blank=True)  # outlives an outage: it comes back draining
    failures = models.PositiveIntegerField(default=0)  # attempts that ended by its fault
    successes = models.PositiveIntegerField(default=0)
    enrolled_at = models.DateTimeField(auto_now_add=True)

    objects = NodeQuerySet.as_manager()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(state__in=NodeState.values), name="node_state_known")]
        indexes = [models.Index(fields=["state", "last_seen_at"], name="node_liveness")]

    def __str__(self) -> str:
        return f"{self.name} ({self.state})"


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
    flops_per_second: models.JSONField[Any, Any] = models.JSONField(default=dict)  # dtype -> measured FLOP/s
    memory_bytes_per_second = models.FloatField(default=0)
    is_healthy = models.BooleanField(default=True)

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
