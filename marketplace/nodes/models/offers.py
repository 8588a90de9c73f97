"""The terms on which the devices of a node are rented."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from marketplace.foundation import clock
from marketplace.foundation.ids import new_id
from marketplace.foundation.moments import within_calendar
from marketplace.nodes.models.node import Node, suspect_before
from marketplace.nodes.states import NodeState


class OfferQuerySet(models.QuerySet["Offer"]):
    def rentable(self) -> OfferQuerySet:
        """Open offers of measured nodes that are online, neither suspended nor suspected of being offline."""
        now = clock.now()
        still = Q(available_until=None) | Q(available_until__gt=now)
        online = self.filter(
            still,
            is_open=True,
            node__state=NodeState.ONLINE,
            node__measured_at__isnull=False,
            node__suspended_at=None,
        )
        return online.exclude(node__last_seen_at__lt=suspect_before(now))


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
            within_calendar("available_until", name="offer_ends_within_calendar"),
        ]

    def __str__(self) -> str:
        return f"{self.node.name}: {self.price_usd_micros_per_device_hour} micro-USD per device and hour"
