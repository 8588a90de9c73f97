"""Places: slots that take a whole demand, each with its cost. One node, or a gang on one fabric, never a part."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

from jobs.matching.demand import Demand
from jobs.matching.exclusion_reasons import Why
from jobs.matching.score import (
    EXAFLOP,
    SECONDS_PER_HOUR,
    Estimate,
    PlacementSlot,
    cost_of,
    devices_worth,
    estimate,
    failure_chance,
    rework_seconds,
    startup_seconds,
)
from jobs.matching.snapshot import FleetSnapshot


class Place(NamedTuple):
    """Slots, rank 0 first, and what completing the demand there is expected to cost."""

    slots: tuple[PlacementSlot, ...]
    estimate: Estimate
    is_avoided: bool  # a node among them lost this job before
    order: tuple[int, ...]  # the nodes' ids as numbers: breaks ties, so that the answer does not depend on row order

    @property
    def rank(self) -> tuple[bool, float, float, tuple[int, ...]]:
        """Smaller is better: not avoided, then cheaper to complete, then sooner."""
        return (self.is_avoided, *self.estimate.rank, self.order)


@dataclass(frozen=True, slots=True)
class Places:
    """Where a demand could be placed, best first, and why the slots that drop out cannot take it."""

    found: Sequence[Place]
    excluded: dict[int, Why] = field(default_factory=dict)
    members: Sequence[PlacementSlot] = ()  # the slots of which places are made; of one node each: best first


def single_places(demand: Demand, snapshot: FleetSnapshot, slots: Iterable[PlacementSlot]) -> Places:
    """One place a slot, for a demand of one node.

    The same figures as `place_of`, but without making an object of each of ten thousand: that is left for the few that
    somebody looks at.
    """
    worth = {kind: devices_worth(demand, kind) for kind in {each.kind for each in snapshot.classes}}
    work, devices, avoid = demand.work_flops, demand.devices, demand.avoid
    deadline = demand.seconds_left if demand.seconds_left is not None else math.inf
    cap = demand.cap_usd_micros if demand.cap_usd_micros is not None else math.inf
    ranked: list[tuple[bool, float, float, int, PlacementSlot]] = []
    excluded: dict[int, Why] = {}
    for slot in slots:
        row, position, flops = slot
        throughput = flops * worth[snapshot.groups[row][position].kind]
        rate = snapshot.prices_usd_micros[row] * devices
        node_id = snapshot.node_ids[row]
        if work is None:
            cost, seconds = rate / SECONDS_PER_HOUR / throughput * EXAFLOP, -throughput
            if min(deadline, cap * SECONDS_PER_HOUR / rate) > snapshot.open_seconds[row]:
                excluded[row] = Why.WINDOW
                continue
        else:
            startup = startup_seconds(snapshot.executors[row])
            chance = failure_chance(snapshot.failures[row], snapshot.successes[row])
            work_seconds = work / throughput
            seconds = startup + work_seconds + rework_seconds(demand, work_seconds, startup, chance)
            cost = cost_of(rate, seconds)
            if seconds > snapshot.seconds_max[row]:
                excluded[row] = Why.TOO_LONG
                continue
            if seconds > snapshot.open_seconds[row]:
                excluded[row] = Why.WINDOW
                continue
            if seconds > deadline:
                excluded[row] = Why.DEADLINE
                continue
            if cost > cap:
                excluded[row] = Why.COST
                continue
        ranked.append((bool(avoid) and node_id in avoid, cost, seconds, node_id.int, slot))
    ranked.sort()
    best_first = [entry[-1] for entry in ranked]
    return Places(_SinglePlaces(demand, snapshot, best_first), excluded, best_first)


class _SinglePlaces(Sequence[Place]):
    """Places of one slot each, made when they are looked at."""

    def __init__(self, demand: Demand, snapshot: FleetSnapshot, slots: list[PlacementSlot]) -> None:
        self._demand, self._snapshot, self._slots = demand, snapshot, slots

    def __len__(self) -> int:
        return len(self._slots)

    @overload
    def __getitem__(self, position: int) -> Place: ...
    @overload
    def __getitem__(self, position: slice) -> list[Place]: ...
    def __getitem__(self, position: int | slice) -> Place | list[Place]:
        if isinstance(position, slice):
            return [place_of(self._demand, self._snapshot, (slot,)) for slot in self._slots[position]]
        return place_of(self._demand, self._snapshot, (self._slots[position],))


def gang_places(demand: Demand, snapshot: FleetSnapshot, slots: Iterable[PlacementSlot]) -> Places:
    """The best place of each fabric, for a demand of several nodes; nodes without a fabric reach nobody."""
    found: list[Place] = []
    excluded: dict[int, Why] = {}
    slots = list(slots)
    declared = Counter(_declared(snapshot, slot) for slot in slots)
    for members in slots_by_fabric(snapshot, slots):
        best, why = best_gang(demand, snapshot, members)
        if best is not None and why is None:
            found.append(best)
        elif why is not None:
            for slot in members:
                label = _declared(snapshot, slot)
                would_do = why is Why.FABRIC and bool(label[0]) and declared[label] >= demand.nodes
                excluded[slot.row] = _link_reason(snapshot, slot) if would_do else why
    found.sort(key=_rank)
    return Places(found, excluded, slots)


def slots_by_fabric(snapshot: FleetSnapshot, slots: Iterable[PlacementSlot]) -> list[list[PlacementSlot]]:
    """The slots that reach each other and could train together: of one fabric and one kind; without a fabric, alone."""
    fabrics: defaultdict[tuple[str, str, int], list[PlacementSlot]] = defaultdict(list)
    for slot in slots:
        fabric = snapshot.fabrics[slot.row]
        kind = snapshot.groups[slot.row][slot.group].kind
        fabrics[fabric, kind, -1 if fabric else slot.row].append(slot)
    return list(fabrics.values())


def best_gang(demand: Demand, snapshot: FleetSnapshot, members: list[PlacementSlot]) -> tuple[Place | None, Why | None]:
    """The best gang of one fabric that breaks no limit; else the reason why there is none.

    The slowest node sets the pace, so for each possible slowest one the cheapest others that are at least as fast join
    it: exact but for the nodes' failure rates and start-ups, which weigh little.
    """
    if len(members) < demand.nodes:
        return None, Why.FABRIC

    def avoided_then_fast(slot: PlacementSlot) -> tuple[bool, float, int]:
        node_id = snapshot.node_ids[slot.row]
        return bool(demand.avoid) and node_id in demand.avoid, -slot.flops_per_device, node_id.int

    # A heap whose top is the dearest of the cheapest `nodes` so far.
    cheapest: list[tuple[int, int, PlacementSlot]] = []
    best: tuple[Place | None, Why | None] = None, Why.FABRIC
    for slot in sorted(members, key=avoided_then_fast):
        entry = (-snapshot.prices_usd_micros[slot.row], -snapshot.node_ids[slot.row].int, slot)
        if len(cheapest) < demand.nodes:
            heapq.heappush(cheapest, entry)
        elif heapq.heappushpop(cheapest, entry) is entry:
            continue
        if len(cheapest) < demand.nodes:
            continue
        in_order = sorted(cheapest, key=lambda entry: -entry[1])
        place = place_of(demand, snapshot, tuple(member for _, _, member in in_order))
        why = _refusal(demand, snapshot, place)
        if best[0] is None or (why is not None, place.rank) < (best[1] is not None, best[0].rank):
            best = place, why
    return best


def places_of(demand: Demand) -> Callable[[Demand, FleetSnapshot, Iterable[PlacementSlot]], Places]:
    """How places for this demand are found."""
    return single_places if demand.nodes == 1 else gang_places


def place_of(demand: Demand, snapshot: FleetSnapshot, slots: tuple[PlacementSlot, ...]) -> Place:
    """These slots together, with their cost."""
    holds = 1.0
    for slot in slots:
        holds *= 1 - failure_chance(snapshot.failures[slot.row], snapshot.successes[slot.row])
    figures = estimate(
        demand,
        kind=snapshot.groups[slots[0].row][slots[0].group].kind,
        flops_per_device=min(slot.flops_per_device for slot in slots),
        price_usd_micros_sum=sum(snapshot.prices_usd_micros[slot.row] for slot in slots),
        startup=max(startup_seconds(snapshot.executors[slot.row]) for slot in slots),
        break_chance=1 - holds,
    )
    ids = [snapshot.node_ids[slot.row] for slot in slots]
    is_avoided = bool(demand.avoid) and any(node_id in demand.avoid for node_id in ids)
    return Place(slots, figures, is_avoided, tuple(node_id.int for node_id in ids))


def seconds_possible(demand: Demand, snapshot: FleetSnapshot, slots: Iterable[PlacementSlot]) -> float:
    """How long a lease there could last: until the deadline, or until the cap is used up."""
    rate = sum(snapshot.prices_usd_micros[slot.row] for slot in slots) * demand.devices
    cap = demand.cap_usd_micros if demand.cap_usd_micros is not None else math.inf
    return min(demand.seconds_left if demand.seconds_left is not None else math.inf, cap * SECONDS_PER_HOUR / rate)


def _refusal(demand: Demand, snapshot: FleetSnapshot, place: Place) -> Why | None:
    """The limit that completing the job here would break. Where no work is declared, nothing is expected but that it
    may last as long as its budget and its deadline let it."""
    seconds, usd_micros = place.estimate.expected_seconds, place.estimate.expected_usd_micros
    open_seconds = min(snapshot.open_seconds[slot.row] for slot in place.slots)
    if seconds is None or usd_micros is None:
        return Why.WINDOW if seconds_possible(demand, snapshot, place.slots) > open_seconds else None
    if seconds > open_seconds:
        return Why.WINDOW
    if seconds > min(snapshot.seconds_max[slot.row] for slot in place.slots):
        return Why.TOO_LONG
    if demand.seconds_left is not None and seconds > demand.seconds_left:
        return Why.DEADLINE
    if demand.cap_usd_micros is not None and usd_micros > demand.cap_usd_micros:
        return Why.COST
    return None


def _declared(snapshot: FleetSnapshot, slot: PlacementSlot) -> tuple[str, str]:
    """Slots with the same would train together if they reached each other as declared."""
    return snapshot.labels[slot.row], snapshot.groups[slot.row][slot.group].kind


def _link_reason(snapshot: FleetSnapshot, slot: PlacementSlot) -> Why:
    """Why a node of a declared fabric is in no gang, though the fabric has the nodes."""
    return Why.LINK if snapshot.have_failed_links[slot.row] else Why.UNPROBED


def _rank(place: Place) -> tuple[bool, float, float, tuple[int, ...]]:
    return place.rank
