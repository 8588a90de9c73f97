"""The free placement slot that is best for an endpoint's next replica, or why there is none.

1  screen: where it fits, and devices are free (matching/fit.py)
2  rank: a token is cheapest, in a failure domain of its own, where nothing of it broke lately (spreading.py)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q

from jobs.matching import fleet
from jobs.matching.demand import Demand, MatchRequest
from jobs.matching.fit import screen
from jobs.matching.match import SlotTaken, match
from jobs.matching.score import PlacementSlot
from jobs.matching.snapshot import FleetSnapshot
from jobs.models import Endpoint, EndpointVersion, Job, Lease
from jobs.pricing.costs import charged_of
from jobs.quoting.quote_terms import demand_of
from jobs.scaling.rollout import STARTING_SECONDS_MAX
from jobs.scaling.spreading import FAILED_LATELY_SECONDS, Candidate, Placed, Requirements, rank, tokens_bound
from jobs.spec import Spec
from jobs.states import VersionState
from marketplace.foundation import clock
from provider_agent.protocol import Fault

WEIGHTS_BYTES_UNKNOWN = 2 << 30  # of a hub's model: nodes are compared, so its size matters little
_ME = ""


class FoundSlot(NamedTuple):
    """Where a replica goes."""

    slot: SlotTaken
    provider_id: UUID
    is_on_demand: bool


def find_slot(
    endpoint: Endpoint, version: EndpointVersion, spec: Spec, placed: Sequence[Placed], requirements: Requirements
) -> FoundSlot | str:
    """The best free placement slot that fits (`spreading.rank`), or why there is none, for people."""
    job, snapshot = endpoint.job, fleet.take_snapshot()
    demand = _demand(job, spec)
    slots = {
        snapshot.node_ids[slot.row]: slot
        for slot in screen(demand, snapshot).slots
        if len(snapshot.groups[slot.row][slot.group].free) >= demand.devices
    }
    broke = _broken_nodes(endpoint)
    weights = version.input_artifact.size_bytes if version.input_artifact else WEIGHTS_BYTES_UNKNOWN
    slowest = _slowest_memory(snapshot, slots.values())
    candidates = [
        _candidate(slot, snapshot, demand, broke, weights, requirements.streams, slowest) for slot in slots.values()
    ]
    ranked = rank(candidates, placed, requirements)
    if not ranked:
        reasons = match([MatchRequest(_ME, demand, queued_at=job.queued_at)], snapshot).reasons
        words = reasons[_ME].message if _ME in reasons else "Every node that fits is taken."
        return f"{_waits_beside(version)}{words}"
    best = ranked[0]
    slot = slots[best.node_id]
    offer_id = snapshot.offer_ids[slot.row]
    assert offer_id is not None  # noqa: S101 - a node without an offer has no slot
    free = snapshot.groups[slot.row][slot.group].free[: demand.devices]
    taken = SlotTaken(best.node_id, offer_id, free, snapshot.prices_usd_micros[slot.row])
    return FoundSlot(taken, best.provider_id, best.is_on_demand)


def _waits_beside(version: EndpointVersion) -> str:
    """Of a version that is to take over from another, which answers meanwhile."""
    if version.number == 1 or version.state != VersionState.STARTING:
        return ""
    patience = STARTING_SECONDS_MAX // 60
    return f"Version {version.number} waits for room beside the one before it, {patience:.0f} min at most: "


def _slowest_memory(snapshot: FleetSnapshot, slots: Iterable[PlacementSlot]) -> float:
    """Bytes a second of a device, where it was measured; who left it out is taken to be as slow."""
    measured = (snapshot.groups[slot.row][slot.group].memory_bytes_per_second for slot in slots)
    return min((speed for speed in measured if speed > 0), default=math.inf)


def _candidate(  # noqa: PLR0917 - what a place is judged by
    slot: PlacementSlot,
    snapshot: FleetSnapshot,
    demand: Demand,
    broke: Mapping[UUID, datetime],
    weights: int,
    streams: int,
    slowest_memory: float,
) -> Candidate:
    row, node_id = slot.row, snapshot.node_ids[slot.row]
    group = snapshot.groups[row][slot.group]
    return Candidate(
        node_id=node_id,
        provider_id=snapshot.provider_ids[row],
        usd_micros_per_hour=snapshot.prices_usd_micros[row] * demand.devices,
        tokens_per_second=tokens_bound(
            weights_bytes=max(weights, 1),
            streams=streams,
            memory_bytes_per_second=(group.memory_bytes_per_second or slowest_memory) * demand.devices,
            flops_per_second=slot.flops_per_device * demand.devices,
            kind=group.kind,
        ),
        region=snapshot.regions[row],
        failures=snapshot.failures[row],
        successes=snapshot.successes[row],
        open_seconds=snapshot.open_seconds[row],
        seconds_max=snapshot.seconds_max[row],
        failed_here_seconds=(clock.now() - broke[node_id]).total_seconds() if node_id in broke else None,
    )


def _demand(job: Job, spec: Spec) -> Demand:
    left = (job.deadline_at - clock.now()).total_seconds() if job.deadline_at else None
    return demand_of(
        spec,
        organisation_id=job.organisation_id,
        price_ceiling_usd_micros=job.price_ceiling_usd_micros,
        cap_usd_micros=job.cap_usd_micros - charged_of(job).usd_micros,
        seconds_left=left,
    )


def _broken_nodes(endpoint: Endpoint) -> dict[UUID, datetime]:
    """Nodes on which a replica of it broke lately, and when: by their own or the network's fault, or, before it was
    ready, by the customer's. That is what its agent reports: the next start goes to another node."""
    theirs = Q(attempt__fault__in=[Fault.PROVIDER, Fault.NETWORK])
    by_their_agents = Q(attempt__fault=Fault.CUSTOMER, attempt__replica__ready_at=None)
    broken = Lease.objects.filter(
        theirs | by_their_agents,
        attempt__replica__endpoint=endpoint,
        ended_at__gt=clock.now() - timedelta(seconds=FAILED_LATELY_SECONDS),
    )
    rows = broken.order_by("ended_at").values_list("node_id", "ended_at")
    return {node_id: ended_at for node_id, ended_at in rows if ended_at is not None}
