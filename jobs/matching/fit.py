"""Strict fit, node by node: a slot for each node that could ever take the demand, one reason for each that cannot.

The checks are made in the order of `Why`; a node counts under the first that it fails. Whether its devices are free
just now is looked at last.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from jobs.matching.demand import UNISOLATED, Demand, flops_of
from jobs.matching.exclusion_reasons import ORDER, Why
from jobs.matching.score import SECONDS_PER_HOUR, PlacementSlot
from jobs.matching.snapshot import DeviceClass, DeviceGroup, FleetSnapshot, is_model


@dataclass(frozen=True, slots=True)
class Screening:
    """Every node of a snapshot once: in `slots`, or counted under one reason in `excluded`."""

    slots: list[PlacementSlot]
    excluded: Counter[Why]


def screen(demand: Demand, snapshot: FleetSnapshot) -> Screening:
    """Sort the whole fleet into nodes that could ever take `demand` and nodes that cannot, by facts of each alone.

    Whole classes of devices are refused at once; only the nodes of those that fit are looked at one by one.
    """
    reasons = [_class_reason(demand, device_class) for device_class in snapshot.classes]
    refuse = _node_check(demand, snapshot)
    excluded: Counter[Why] = Counter(snapshot.closed)
    slots: list[PlacementSlot] = []
    for reason, rows in zip(reasons, snapshot.rows_by_class, strict=True):
        if reason is not None:
            excluded[reason] += len(rows)
            continue
        for row in rows:
            group = snapshot.groups[row][0]
            flops = flops_of(group.flops_per_second, group.kind, demand.dtype)
            why = _group_reason(demand, group, flops) or refuse(row)
            if why is None:
                slots.append(PlacementSlot(row, 0, flops))
            else:
                excluded[why] += 1
    for row in snapshot.rows_mixed:
        slot, why = _best_group(demand, snapshot, row, reasons)
        why = why or refuse(row)
        if why is None:
            slots.append(slot)
        else:
            excluded[why] += 1
    return Screening(slots, excluded)


def _best_group(
    demand: Demand, snapshot: FleetSnapshot, row: int, reasons: list[Why | None]
) -> tuple[PlacementSlot, Why | None]:
    """Of a node with several groups: the fastest that fits, or the reason of the one that came furthest."""
    best, furthest = PlacementSlot(row, 0, 0.0), Why.KIND
    for position, (group, class_id) in enumerate(zip(snapshot.groups[row], snapshot.class_ids[row], strict=True)):
        flops = flops_of(group.flops_per_second, group.kind, demand.dtype)
        why = reasons[class_id] or _group_reason(demand, group, flops)
        if why is None and flops > best.flops_per_device:
            best = PlacementSlot(row, position, flops)
        elif why is not None and ORDER[why] > ORDER[furthest]:
            furthest = why
    return best, None if best.flops_per_device > 0 else furthest


def _group_reason(demand: Demand, group: DeviceGroup, flops: float) -> Why | None:
    if group.compute_capability < demand.compute_capability:
        return Why.COMPUTE_CAPABILITY
    if group.cuda < demand.cuda:
        return Why.CUDA
    if flops <= 0:
        return Why.DTYPE
    return Why.GPUS if group.total < demand.devices else None


def _node_check(demand: Demand, snapshot: FleetSnapshot) -> Callable[[int], Why | None]:
    """What a node whose devices fit has to have besides."""
    regions, executors = frozenset(demand.regions), frozenset(demand.executors)
    asks_more = bool(
        demand.needs_egress
        or demand.lent
        or demand.cpus
        or demand.ram_mib
        or demand.disk_mib
        or demand.shm_mib
        or demand.needs_token_receipts
        or demand.needs_serving
        or demand.runtime_features
        or demand.wallet_for
    )
    ceiling = math.inf if demand.price_ceiling_usd_micros is None else demand.price_ceiling_usd_micros
    devices, cap = demand.devices * demand.nodes, demand.cap_usd_micros
    # A budget that cannot pay even the shortest time that the provider rents for is refused. The budget counts here,
    # not the expected duration: that is an estimate, and a provider is paid for what was used.
    affordable = math.inf if cap is None else cap * SECONDS_PER_HOUR / devices  # micro-USD an hour x seconds

    def refuse(row: int) -> Why | None:
        price = snapshot.prices_usd_micros[row]
        if executors and snapshot.executors[row] not in executors:
            return Why.EXECUTOR
        if why := _isolation_reason(demand, snapshot, row):
            return why
        if asks_more and (why := _lacks(demand, snapshot, row)):
            return why
        if regions and snapshot.regions[row] not in regions:
            return Why.REGION
        if price > ceiling:
            return Why.PRICE
        return Why.TOO_SHORT if price * snapshot.seconds_min[row] > affordable else None

    return refuse


def _isolation_reason(demand: Demand, snapshot: FleetSnapshot, row: int) -> Why | None:
    """As `demand.is_accepted`: the customer's no first, then the provider's."""
    isolation = snapshot.isolations[row]
    if demand.isolations and isolation not in demand.isolations:
        return Why.ISOLATION
    if isolation != UNISOLATED or snapshot.allow_strangers[row]:
        return None
    owner = snapshot.organisation_ids[row]
    return None if owner is not None and owner == demand.organisation_id else Why.OWN_JOBS


def _lacks(demand: Demand, snapshot: FleetSnapshot, row: int) -> Why | None:
    """What few jobs require of the node around their devices: the internet, lent folders, pay in tokens."""
    lacks = (
        (Why.CPUS, lease_part(snapshot, row, demand.devices, snapshot.cpus) < demand.cpus),
        (Why.RAM, lease_part(snapshot, row, demand.devices, snapshot.ram_mib) < demand.ram_mib),
        (Why.DISK, lease_part(snapshot, row, demand.devices, snapshot.disk_mib) < demand.disk_mib),
        (Why.SHM, lease_part(snapshot, row, demand.devices, snapshot.shm_mib) < demand.shm_mib),
        (Why.EGRESS, demand.needs_egress and not snapshot.egresses[row]),
        (Why.LENT, not demand.lent <= snapshot.lent[row]),
        (Why.NO_SERVING, demand.needs_serving and not snapshot.servers[row]),
        (Why.OLD_RUNTIME, not demand.runtime_features <= snapshot.runtime_features[row]),
        (Why.OLD_AGENT, demand.needs_token_receipts and not snapshot.token_receipts[row]),
        (Why.WALLET, bool(demand.wallet_for) and demand.wallet_for not in snapshot.wallets[row]),
        (Why.NOT_ALLOWED, demand.only_nodes is not None and snapshot.node_ids[row] not in demand.only_nodes),
    )
    return next((why for why, is_lacking in lacks if is_lacking), None)


def lease_part(snapshot: FleetSnapshot, row: int, devices: int, column: tuple[int, ...]) -> int:
    """What a lease of so many devices of a node has of a column of `snapshot`: their share of all its devices."""
    return column[row] * devices // max(snapshot.devices[row], 1)


def _class_reason(demand: Demand, device_class: DeviceClass) -> Why | None:
    if demand.kind is not None and device_class.kind != demand.kind:
        return Why.KIND
    if demand.models and not any(map(partial(is_model, model=device_class.model), demand.models)):
        return Why.MODEL
    return Why.MEMORY if device_class.memory_mib < max(demand.memory_mib, demand.memory_floor_mib) else None
