"""Questions that are asked of supply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Q

from marketplace.foundation import clock
from marketplace.nodes.states import NodeState

if TYPE_CHECKING:
    from marketplace.nodes.models import Device, Node, Offer  # noqa: F401 - names of the generic parameters


class NodeQuerySet(models.QuerySet["Node"]):
    def alive(self) -> NodeQuerySet:
        """Nodes that should be beating."""
        return self.filter(state__in=[NodeState.ONLINE, NodeState.DRAINING])

    def of(self, organisation: Any) -> NodeQuerySet:
        """Nodes that this organisation provides."""
        return self.filter(provider__organisation=organisation)


class OfferQuerySet(models.QuerySet["Offer"]):
    def rentable(self) -> OfferQuerySet:
        """Open offers of measured nodes that are online now."""
        still = Q(available_until=None) | Q(available_until__gt=clock.now())
        return self.filter(still, is_open=True, node__state=NodeState.ONLINE, node__measured_at__isnull=False)


class DeviceQuerySet(models.QuerySet["Device"]):
    def rentable(self) -> DeviceQuerySet:
        """Healthy devices of measured nodes that are online now; whether one is leased, the jobs room knows."""
        return self.filter(is_healthy=True, node__state=NodeState.ONLINE, node__measured_at__isnull=False)
