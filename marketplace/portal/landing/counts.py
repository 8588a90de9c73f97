"""The market in five numbers, for visitors of the front page."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Min

from jobs.models import Job
from jobs.states import JobState
from marketplace.nodes.models import Device, Node, Offer
from marketplace.nodes.offering import schedule
from marketplace.nodes.states import NodeState
from marketplace.portal.amounts import price_text


@dataclass(frozen=True)
class MarketCounts:
    """What is there now."""

    nodes_online: int
    devices: int
    jobs_running: int
    jobs_completed: int
    cheapest_usd_micros_per_device_hour: int | None

    @property
    def cheapest_usd(self) -> str:
        """Dollars with as many digits as a small price needs; a dash where nothing is offered."""
        micros = self.cheapest_usd_micros_per_device_hour
        if micros is None:
            return "–"
        return price_text(micros)


def count_market() -> MarketCounts:
    """One look at the database; a few small queries."""
    closed = schedule.closed_nodes()
    offers = Offer.objects.rentable().exclude(node__in=closed)
    return MarketCounts(
        nodes_online=Node.objects.filter(state=NodeState.ONLINE).count(),
        devices=Device.objects.rentable().exclude(node__in=closed).count(),
        jobs_running=Job.objects.filter(state=JobState.RUNNING).count(),
        jobs_completed=Job.objects.filter(state=JobState.COMPLETED).count(),
        cheapest_usd_micros_per_device_hour=offers.aggregate(price=Min("price_usd_micros_per_device_hour"))["price"],
    )
