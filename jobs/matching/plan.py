"""The plan of one job: where it fits, best first, why elsewhere not, and what would help where it fits nowhere."""

from __future__ import annotations

from collections import Counter

from jobs.matching.demand import Demand
from jobs.matching.exclusion_reasons import Why
from jobs.matching.explain import exclusions_of
from jobs.matching.fit import screen
from jobs.matching.fixes import find_fixes
from jobs.matching.places import Place, places_of
from jobs.matching.snapshot import FleetSnapshot
from jobs.wire import Candidate, Plan

CANDIDATES_MAX = 20


def plan(demand: Demand, snapshot: FleetSnapshot) -> Plan:
    """What a quote shows. The first candidate is the chosen one, and is free now unless every place that fits is busy.

    Nodes are candidates or counted in one exclusion, but for those of a gang's fabric that it leaves out.
    """
    screening = screen(demand, snapshot)
    find = places_of(demand)
    free = [slot for slot in screening.slots if len(snapshot.groups[slot.row][slot.group].free) >= demand.devices]
    possible = find(demand, snapshot, screening.slots)
    now = find(demand, snapshot, free) if len(free) < len(screening.slots) else possible
    excluded = screening.excluded + Counter(possible.excluded.values())
    busy = {slot.row for slot in screening.slots} - {slot.row for slot in free} - set(possible.excluded)
    excluded += Counter({Why.BUSY: len(busy)})
    shown = now if now.found else possible
    return Plan(
        nodes_seen=len(snapshot),
        candidates=[
            _candidate(demand, snapshot, place, is_chosen=number == 0, is_free=bool(now.found))
            for number, place in enumerate(shown.found[:CANDIDATES_MAX])
        ],
        exclusions=exclusions_of(demand, excluded),
        fixes=[] if shown.found else find_fixes(demand, snapshot, excluded),
        work_flops=demand.work_flops,
    )


def _candidate(demand: Demand, snapshot: FleetSnapshot, place: Place, *, is_chosen: bool, is_free: bool) -> Candidate:
    rows = [slot.row for slot in place.slots]
    groups = [snapshot.groups[slot.row][slot.group] for slot in place.slots]
    models = {group.model for group in groups}
    prices = [snapshot.prices_usd_micros[row] for row in rows]
    figures = place.estimate
    return Candidate(
        node_ids=[snapshot.node_ids[row] for row in rows],
        node_names=[snapshot.names[row] for row in rows],
        device_model=" + ".join(sorted(models)),
        devices=demand.devices * demand.nodes,
        region=" + ".join(sorted({snapshot.regions[row] for row in rows})),
        price_usd_micros_per_device_hour=max(prices),
        flops_per_second=figures.flops_per_second,
        work_seconds=figures.work_seconds,
        startup_seconds=figures.startup_seconds,
        rework_seconds=figures.rework_seconds,
        expected_seconds=figures.expected_seconds,
        expected_usd_micros=figures.expected_usd_micros,
        usd_micros_per_exaflop=figures.usd_micros_per_exaflop,
        is_chosen=is_chosen,
        is_free=is_free,
        device_kind=groups[0].kind,
        device_memory_mib=min(group.memory_mib for group in groups),
        device_flops_per_second=min(slot.flops_per_device for slot in place.slots),
        device_memory_bytes_per_second=min(group.memory_bytes_per_second for group in groups),
    )
