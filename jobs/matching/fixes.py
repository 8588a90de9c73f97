"""The nearest change that would make a job fit: each demand relaxed alone, and each fix tried before it is offered."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from jobs.matching.demand import ISOLATIONS, UNISOLATED, Demand
from jobs.matching.exclusion_reasons import Why
from jobs.matching.explain import format_memory
from jobs.matching.fit import lease_part, screen
from jobs.matching.places import Place, places_of
from jobs.matching.snapshot import DeviceGroup, FleetSnapshot
from jobs.spec.units import format_money, format_version
from jobs.wire import Fix

CENT_USD_MICROS = 10_000


class Change(NamedTuple):
    """One field of a job file with a new value, and the demand that follows from it."""

    field: str
    value: str
    demand: Demand
    message: str  # with {n} for the nodes that it adds


def find_fixes(demand: Demand, snapshot: FleetSnapshot, reasons: Iterable[Why]) -> list[Fix]:
    """For a demand that fits nowhere: of each field that `reasons` blame, the nearest value that alone makes it fit."""
    blamed = set(reasons)
    fixes = []
    for causes, nearest in RELAXATIONS:
        change = nearest(demand, snapshot) if blamed & causes else None
        nodes = _nodes_that_take(change.demand, snapshot) if change else 0
        if change and nodes:
            message = change.message.format(n=f"{nodes} node" + ("s" if nodes > 1 else ""))
            fixes.append(Fix(field=change.field, value=change.value, nodes=nodes, message=message))
    return fixes


def _cheaper_than(demand: Demand, snapshot: FleetSnapshot) -> Change | None:
    places = _places(dataclasses.replace(demand, price_ceiling_usd_micros=None), snapshot)
    if not places or demand.price_ceiling_usd_micros is None:
        return None
    price = min(max(snapshot.prices_usd_micros[slot.row] for slot in place.slots) for place in places)
    more = format_money(price - demand.price_ceiling_usd_micros)
    return Change(
        "budget.max_per_gpu_hour",
        format_money(price),
        dataclasses.replace(demand, price_ceiling_usd_micros=price),
        f"+${more} per GPU-hour adds {{n}}",
    )


def _less_memory(demand: Demand, snapshot: FleetSnapshot) -> Change | None:
    places = _places(dataclasses.replace(demand, memory_mib=0), snapshot)
    if not places:
        return None
    mib = max(min(_group(snapshot, place, i).memory_mib for i in range(len(place.slots))) for place in places)
    return Change(
        "resources.memory",
        format_memory(mib),
        dataclasses.replace(demand, memory_mib=mib),
        f"{format_memory(mib)} of memory per device adds {{n}}",
    )


def _lower_version(demand: Demand, snapshot: FleetSnapshot, *, name: str, label: str) -> Change | None:
    """The highest version that all slots of some place have; none where no agent says which it has."""
    places = _places(_with(demand, name, (0, 0)), snapshot)
    versions = [min(getattr(_group(snapshot, place, i), name) for i in range(len(place.slots))) for place in places]
    version = max(versions, default=(0, 0))
    if version == (0, 0):
        return None
    return Change(
        f"resources.{name}",
        format_version(version),
        _with(demand, name, version),
        f"{label} {format_version(version)} adds {{n}}",
    )


def _fewer_cpus(demand: Demand, snapshot: FleetSnapshot) -> Change | None:
    cpus = _largest_part(dataclasses.replace(demand, cpus=0), snapshot, snapshot.cpus)
    relaxed = dataclasses.replace(demand, cpus=cpus)
    return Change("resources.cpus", str(cpus), relaxed, f"{cpus} cores per node adds {{n}}") if cpus else None


def _less_room(demand: Demand, snapshot: FleetSnapshot, *, name: str, label: str) -> Change | None:
    """Of a node's memory, disk or /dev/shm."""
    column = f"{name}_mib"
    mib = _largest_part(_with(demand, column, 0), snapshot, getattr(snapshot, column))
    if mib < 1:
        return None
    return Change(
        f"resources.{name}",
        format_memory(mib),
        _with(demand, column, mib),
        f"{format_memory(mib)} {label} adds {{n}}",
    )


def _largest_part(without: Demand, snapshot: FleetSnapshot, column: tuple[int, ...]) -> int:
    """Of a demand that does not ask for it: the most of a column that a lease has on every node of some place."""
    places = _places(without, snapshot)
    sizes = (min(lease_part(snapshot, slot.row, without.devices, column) for slot in each.slots) for each in places)
    return max(sizes, default=0)


def _more_regions(demand: Demand, snapshot: FleetSnapshot) -> Change | None:
    places = _places(dataclasses.replace(demand, regions=()), snapshot)
    missing = _most_common({snapshot.regions[slot.row] for slot in place.slots} for place in places)
    if missing is None:
        return None
    regions = tuple(dict.fromkeys((*demand.regions, *missing)))
    return Change(
        "resources.region",
        f"[{', '.join(regions)}]",
        dataclasses.replace(demand, regions=regions),
        f"allowing {' and '.join(missing)} adds {{n}}",
    )


def _more_models(demand: Demand, snapshot: FleetSnapshot) -> Change | None:
    places = _places(dataclasses.replace(demand, models=()), snapshot)
    missing = _most_common({_group(snapshot, place, i).model for i in range(len(place.slots))} for place in places)
    if missing is None:
        return None
    models = tuple(dict.fromkeys((*demand.models, *missing)))
    return Change(
        "resources.models",
        f"[{', '.join(models)}]",
        dataclasses.replace(demand, models=models),
        f"allowing {' and '.join(missing)} adds {{n}}",
    )


def _fewer_gpus(demand: Demand, snapshot: FleetSnapshot) -> Change | None:
    places = _places(dataclasses.replace(demand, devices=1), snapshot)
    sizes = [min(_group(snapshot, place, i).total for i in range(len(place.slots))) for place in places]
    devices = min(max(sizes, default=0), demand.devices - 1)
    if devices < 1:
        return None
    return Change(
        "resources.gpus",
        str(devices),
        dataclasses.replace(demand, devices=devices),
        f"{devices} per node instead of {demand.devices} adds {{n}}",
    )


def _fewer_nodes(demand: Demand, snapshot: FleetSnapshot) -> Change | None:
    fabrics = Counter(snapshot.fabrics[slot.row] for slot in screen(demand, snapshot).slots)
    sizes = [size if fabric else 1 for fabric, size in fabrics.items()]
    nodes = min(max(sizes, default=0), demand.nodes - 1)
    if nodes < 1:
        return None
    return Change(
        "resources.nodes",
        str(nodes),
        dataclasses.replace(demand, nodes=nodes),
        f"{nodes} instead of {demand.nodes} nodes in the gang adds {{n}}",
    )


def _fewer_lent(demand: Demand, snapshot: FleetSnapshot) -> Change | None:
    """The most of the wanted folders that are lent together."""
    places = _places(dataclasses.replace(demand, lent=frozenset()), snapshot)
    common = [demand.lent.intersection(*(snapshot.lent[slot.row] for slot in place.slots)) for place in places]
    if not common:
        return None
    lent = max(common, key=lambda labels: (len(labels), sorted(labels)))
    missing = " and ".join(sorted(demand.lent - lent))
    return Change(
        "lent",
        f"[{', '.join(sorted(lent))}]",
        dataclasses.replace(demand, lent=lent),
        f"doing without {missing} adds {{n}}",
    )


def _no_network(demand: Demand, _snapshot: FleetSnapshot) -> Change | None:
    return Change(
        "network", "none", dataclasses.replace(demand, needs_egress=False), "doing without the internet adds {n}"
    )


def _less_isolation(demand: Demand, snapshot: FleetSnapshot) -> Change | None:
    """The strongest isolation below the one demanded that some place has."""
    for name in ("container", UNISOLATED):
        relaxed = dataclasses.replace(demand, isolations=ISOLATIONS[name])
        if relaxed != demand and _places(relaxed, snapshot):
            return Change("resources.isolation", name, relaxed, f"isolation {name} adds {{n}}")
    return None


def _any_kind(demand: Demand, _snapshot: FleetSnapshot) -> Change | None:
    return Change(
        "resources.kind", "any", dataclasses.replace(demand, kind=None), "allowing any kind of device adds {n}"
    )


def _higher_cap(demand: Demand, snapshot: FleetSnapshot) -> Change | None:
    places = _places(dataclasses.replace(demand, cap_usd_micros=None), snapshot)
    if not places or demand.cap_usd_micros is None:
        return None
    least = min(_cap_needed(demand, snapshot, place) for place in places)
    cap = math.ceil(least / CENT_USD_MICROS) * CENT_USD_MICROS
    return Change(
        "budget.max_total",
        format_money(cap),
        dataclasses.replace(demand, cap_usd_micros=cap),
        f"a budget of ${format_money(cap)} adds {{n}}",
    )


def _later_deadline(demand: Demand, snapshot: FleetSnapshot) -> Change | None:
    places = _places(dataclasses.replace(demand, seconds_left=None), snapshot)
    soonest = min((place.estimate.expected_seconds or 0.0 for place in places), default=0.0)
    if soonest <= 0:
        return None
    minutes = math.ceil(soonest / 60)
    return Change(
        "budget.deadline",
        f"{minutes}m",
        dataclasses.replace(demand, seconds_left=minutes * 60.0),
        f"a deadline of {minutes} minutes adds {{n}}",
    )


def _before_they_close(demand: Demand, snapshot: FleetSnapshot) -> Change | None:
    """For a job that declares no work: the longest time that a node which closes could still give it."""
    if demand.work_flops is not None:
        return None
    opens = [snapshot.open_seconds[slot.row] for slot in screen(demand, snapshot).slots]
    minutes = int(max((seconds for seconds in opens if math.isfinite(seconds)), default=0.0) // 60)
    if minutes < 1:
        return None
    return Change(
        "budget.deadline",
        f"{minutes}m",
        dataclasses.replace(demand, seconds_left=minutes * 60.0),
        f"a deadline of {minutes} minutes, when they close, adds {{n}}",
    )


RELAXATIONS: list[tuple[frozenset[Why], Callable[[Demand, FleetSnapshot], Change | None]]] = [
    (frozenset({Why.PRICE}), _cheaper_than),
    (frozenset({Why.MEMORY}), _less_memory),
    (
        frozenset({Why.COMPUTE_CAPABILITY}),
        partial(_lower_version, name="compute_capability", label="compute capability"),
    ),
    (frozenset({Why.CUDA}), partial(_lower_version, name="cuda", label="CUDA")),
    (frozenset({Why.CPUS}), _fewer_cpus),
    (frozenset({Why.RAM}), partial(_less_room, name="ram", label="of memory per node")),
    (frozenset({Why.DISK}), partial(_less_room, name="disk", label="of free disk")),
    (frozenset({Why.SHM}), partial(_less_room, name="shm", label="of /dev/shm")),
    (frozenset({Why.REGION}), _more_regions),
    (frozenset({Why.MODEL}), _more_models),
    (frozenset({Why.GPUS}), _fewer_gpus),
    (frozenset({Why.FABRIC, Why.LINK, Why.UNPROBED}), _fewer_nodes),
    (frozenset({Why.KIND}), _any_kind),
    (frozenset({Why.ISOLATION}), _less_isolation),
    (frozenset({Why.EGRESS}), _no_network),
    (frozenset({Why.LENT}), _fewer_lent),
    (frozenset({Why.COST, Why.TOO_SHORT}), _higher_cap),
    (frozenset({Why.DEADLINE}), _later_deadline),
    (frozenset({Why.WINDOW}), _before_they_close),
]


def _with(demand: Demand, name: str, value: int | tuple[int, int]) -> Demand:
    change: dict[str, Any] = {name: value}
    return dataclasses.replace(demand, **change)


def _places(demand: Demand, snapshot: FleetSnapshot) -> Sequence[Place]:
    return places_of(demand)(demand, snapshot, screen(demand, snapshot).slots).found


def _nodes_that_take(demand: Demand, snapshot: FleetSnapshot) -> int:
    slots = screen(demand, snapshot).slots
    places = places_of(demand)(demand, snapshot, slots)
    return len(slots) - len(places.excluded) if places.found else 0


def _group(snapshot: FleetSnapshot, place: Place, position: int) -> DeviceGroup:
    slot = place.slots[position]
    return snapshot.groups[slot.row][slot.group]


def _most_common(sets: Iterable[set[str]]) -> list[str] | None:
    """The set that most places have, in a fixed order."""
    counts: Counter[tuple[str, ...]] = Counter(tuple(sorted(each)) for each in sets)
    return list(min(counts.items(), key=lambda item: (-item[1], item[0]))[0]) if counts else None


def _cap_needed(demand: Demand, snapshot: FleetSnapshot, place: Place) -> int:
    """What a budget must hold for this place: what it is expected to cost, and the shortest time it is rented for."""
    devices = demand.devices * demand.nodes
    shortest = [
        snapshot.prices_usd_micros[slot.row] * devices * snapshot.seconds_min[slot.row] / 3600 for slot in place.slots
    ]
    return max(place.estimate.expected_usd_micros or 0, math.ceil(max(shortest)))
