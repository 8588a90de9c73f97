"""What lies between the nodes of a gang, as they measured it: read for the few places that somebody looks at."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from typing import Final, NamedTuple
from uuid import UUID

from jobs.wire import Plan
from marketplace.nodes.models import FabricLink

BYTES_PER_SECOND_MAX: Final = 1e15
ROUND_TRIP_SECONDS_MAX: Final = 10.0


class SlowestLink(NamedTuple):
    """Of all links between some nodes; 0: none was measured."""

    bytes_per_second: float = 0.0
    round_trip_seconds: float = 0.0


def with_links(plan: Plan) -> Plan:
    """The plan whose candidates of several nodes have the slowest of their links."""
    gangs = [candidate.node_ids for candidate in plan.candidates if len(candidate.node_ids) > 1]
    if not gangs:
        return plan
    found = _links(set(chain.from_iterable(gangs)))
    candidates = []
    for each in plan.candidates:
        link = _slowest(found, each.node_ids)
        figures = {"link_bytes_per_second": link.bytes_per_second, "link_round_trip_seconds": link.round_trip_seconds}
        candidates.append(each.model_copy(update=figures))
    return plan.model_copy(update={"candidates": candidates})


def slowest_link(node_ids: Collection[UUID]) -> SlowestLink:
    """The least bandwidth and the longest round trip between any two of these nodes."""
    return _slowest(_links(node_ids), node_ids) if len(node_ids) > 1 else SlowestLink()


def _links(node_ids: Collection[UUID]) -> list[FabricLink]:
    return list(FabricLink.objects.filter(a__in=node_ids, b__in=node_ids, is_reachable=True))


def _slowest(links: list[FabricLink], node_ids: Collection[UUID]) -> SlowestLink:
    between = [each for each in links if each.a_id in node_ids and each.b_id in node_ids]
    rates = [each.bandwidth_bytes_per_second for each in between if each.bandwidth_bytes_per_second]
    trips = [each.round_trip_us for each in between if each.round_trip_us is not None]
    return SlowestLink(
        min(float(min(rates, default=0)), BYTES_PER_SECOND_MAX),
        min(max(trips, default=0) / 1e6, ROUND_TRIP_SECONDS_MAX),
    )
