"""Strict fit, node by node: a seat for each node that could ever take the demand, one reason for each that cannot.

The checks are made in the order of `Why`; a node counts under the first that it fails. Whether its devices are free
just now is another question, asked last.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from jobs.matching.cost import Seat
from jobs.matching.request import Demand, flops_of
from jobs.matching.snapshot import DeviceClass, DeviceGroup, FleetSnapshot, is_model

ONLINE = "online"


class Why(StrEnum):
    """Why a node does not take a job, in the order in which it is asked."""

    PENDING = "pending"
    SILENT = "silent"
    OFFLINE = "offline"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    UNMEASURED = "unmeasured"
    NO_OFFER = "no_offer"
    KIND = "kind"
    MODEL = "model"
    MEMORY = "memory"
    DTYPE = "dtype"
    GPUS = "gpus"
    EXECUTOR = "executor"
    REGION = "region"
    PRICE = "price"
    TOO_SHORT = "too_short"
    FABRIC = "fabric"
    TOO_LONG = "too_long"
    DEADLINE = "deadline"
    COST = "cost"
    BUSY = "busy"
    RESERVED = "reserved"


ORDER = {why: number for number, why in enumerate(Why)}
# States of a node in which it takes nothing; online is the one in which it does.
STATE_REASONS = {why.value: why for why in (Why.PENDING, Why.SILENT, Why.OFFLINE, Why.DRAINING, Why.QUARANTINED)}


@dataclass(frozen=True, slots=True)
class Screening:
    """Every node of a snapshot once: in `seats`, or with its reason in `excluded`."""

    seats: list[Seat]
    excluded: dict[int, Why]


def screen(demand: Demand, snapshot: FleetSnapshot) -> Screening:
    """Sort the whole fleet into nodes that could ever take `demand` and nodes that cannot, by facts of each alone."""
    class_reasons = [_class_reason(demand, device_class) for device_class in snapshot.classes]
    columns = zip(
        snapshot.states,
        snapshot.are_measured,
        snapshot.offer_ids,
        snapshot.regions,
        snapshot.executors,
        snapshot.prices_usd_micros,
        snapshot.seconds_min,
        snapshot.groups,
        snapshot.class_ids,
        strict=True,
    )
    regions, executors, ceiling = (
        frozenset(demand.regions),
        frozenset(demand.executors),
        demand.price_ceiling_usd_micros,
    )
    seats: list[Seat] = []
    excluded: dict[int, Why] = {}
    for index, (state, measured, offer, region, executor, price, shortest, groups, class_ids) in enumerate(columns):
        if state != ONLINE:
            excluded[index] = STATE_REASONS.get(state, Why.OFFLINE)
        elif not measured:
            excluded[index] = Why.UNMEASURED
        elif offer is None:
            excluded[index] = Why.NO_OFFER
        else:
            chosen, why = _best_group(demand, groups, [class_reasons[each] for each in class_ids])
            if why is not None:
                excluded[index] = why
            elif executors and executor not in executors:
                excluded[index] = Why.EXECUTOR
            elif regions and region not in regions:
                excluded[index] = Why.REGION
            elif ceiling is not None and price > ceiling:
                excluded[index] = Why.PRICE
            elif _is_too_short(demand, price, shortest):
                excluded[index] = Why.TOO_SHORT
            else:
                seats.append(Seat(index, chosen))
    return Screening(seats, excluded)


def _best_group(demand: Demand, groups: tuple[DeviceGroup, ...], reasons: list[Why | None]) -> tuple[int, Why | None]:
    """The fastest group that fits, or the reason of the one that came furthest."""
    best, best_flops, furthest = 0, 0.0, Why.KIND
    for position, (group, unfit) in enumerate(zip(groups, reasons, strict=True)):
        flops = 0.0 if unfit else flops_of(group.flops_per_second, group.kind, demand.dtype)
        why = unfit or (Why.DTYPE if flops <= 0 else Why.GPUS if group.total < demand.devices else None)
        if why is None and flops > best_flops:
            best, best_flops = position, flops
        elif why is not None and ORDER[why] > ORDER[furthest]:
            furthest = why
    return best, None if best_flops > 0 else furthest


def _class_reason(demand: Demand, device_class: DeviceClass) -> Why | None:
    if demand.kind is not None and device_class.kind != demand.kind:
        return Why.KIND
    if demand.models and not any(map(partial(is_model, model=device_class.model), demand.models)):
        return Why.MODEL
    return Why.MEMORY if device_class.memory_mib < demand.memory_mib else None


def _is_too_short(demand: Demand, price_usd_micros: int, seconds_min: int) -> bool:
    """Whether the budget could not pay even the shortest time that the provider rents for.

    The budget counts, not the expected duration: that is an estimate, and a provider is paid for what was used.
    """
    if demand.cap_usd_micros is None:
        return False
    return price_usd_micros * demand.devices * demand.nodes * seconds_min > demand.cap_usd_micros * 3600
