"""Questions that are asked of supply."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Q

from marketplace.foundation import clock
from marketplace.nodes.states import NodeState
from provider_agent.protocol import BEAT_SECONDS_IDLE, LOST_GRACE_SECONDS, MISSES_UNTIL_SUSPECT

SUSPECT_SECONDS = MISSES_UNTIL_SUSPECT * BEAT_SECONDS_IDLE + LOST_GRACE_SECONDS

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
        """Open offers of measured nodes that are online, neither suspended nor suspected of being gone."""
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


class DeviceQuerySet(models.QuerySet["Device"]):
    def rentable(self) -> DeviceQuerySet:
        """Healthy, measured devices of nodes that are online, neither suspended nor suspected of being gone.

        Whether one is leased, the jobs room knows.
        """
        online = self.filter(
            is_healthy=True,
            node__state=NodeState.ONLINE,
            node__measured_at__isnull=False,
            node__suspended_at=None,
        )
        return online.exclude(flops_per_second={}).exclude(node__last_seen_at__lt=suspect_before(clock.now()))


def suspect_before(now: datetime) -> datetime:
    """Who was last seen before this has missed two beats: nothing new is placed there."""
    return now - timedelta(seconds=SUSPECT_SECONDS)
