"""The database's fleet as a snapshot for the matcher, in five queries whatever its size."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from jobs.matching.fabrics import Link, groups_of
from jobs.matching.snapshot import DeviceGroup, FleetSnapshot, NodeRow, snapshot_of
from jobs.models import LeaseDevice
from marketplace.foundation import clock
from marketplace.nodes import links, schedule
from marketplace.nodes.gangs import gang_label
from marketplace.nodes.models import Device, FabricLink, Node, Offer
from marketplace.nodes.states import NodeState
from provider_agent.protocol import BEAT_SECONDS_IDLE, MISSES_UNTIL_SUSPECT

FLUSH_SECONDS = 10  # beats reach the database in bulk, some seconds late
SUSPECT_AFTER = timedelta(seconds=MISSES_UNTIL_SUSPECT * BEAT_SECONDS_IDLE + FLUSH_SECONDS)
SILENT = "silent"  # online by its state, but suspect: nothing new is placed there
SUSPENDED = "suspended"  # the same, until the node passes a check

CLOSED = "closed"  # online, but by its declared hours it takes nothing now


class _DeviceFacts(NamedTuple):
    id: UUID
    node_id: UUID
    kind: str
    model: str
    memory_mib: int
    flops_per_second: dict[str, float]


class _OfferFacts(NamedTuple):
    id: UUID
    node_id: UUID
    price_usd_micros: int
    seconds_min: int
    seconds_max: int
    region: str
    available_until: datetime | None


def take_snapshot() -> FleetSnapshot:
    """Every node that is not retired, with its open offer and its healthy devices, free or leased, as of now."""
    now = clock.now()
    leased = set(LeaseDevice.objects.filter(is_live=True).values_list("device_id", flat=True))
    groups = _groups_by_node(leased)
    offers = _offers_by_node(now)
    measured = _links(now)
    fabrics, failed = groups_of(measured), {node for a, b, is_good in measured if not is_good for node in (a, b)}
    nodes = (
        Node.objects.exclude(state=NodeState.RETIRED)
        .order_by("id")
        .values_list(
            "id", "name", "state", "provider_id", "region", "fabric", "executor", "measured_at", "last_seen_at",
            "failures", "successes", "suspended_at", "schedule", "facts__isolation", "facts__egress", "facts__lent",
            "facts__gang", "fabric_key",
        )
    )  # fmt: skip
    return snapshot_of(
        (
            _node_row(
                node,
                offers.get(node[0]),
                groups.get(node[0], ()),
                now,
                fabric=fabrics.get(node[0]),
                has_failed_link=node[0] in failed,
            )
            for node in nodes
        ),
        taken_at=now,
    )


def _node_row(
    node: tuple[Any, ...],
    offer: _OfferFacts | None,
    groups: tuple[DeviceGroup, ...],
    now: datetime,
    *,
    fabric: UUID | None,
    has_failed_link: bool,
) -> NodeRow:
    node_id, name, state, provider_id, region, label, executor, measured_at, last_seen_at, *more = node
    failures, successes, suspended_at, hours, isolation, has_egress, lent, gang, key = more
    open_seconds = schedule.open_seconds(schedule.parse(hours), now) if hours else math.inf
    if state == NodeState.ONLINE and last_seen_at is not None and last_seen_at < now - SUSPECT_AFTER:
        state = SILENT
    elif state == NodeState.ONLINE and suspended_at is not None:
        state = SUSPENDED
    elif state == NodeState.ONLINE and open_seconds <= 0:
        state = CLOSED
    return NodeRow(
        node_id=node_id,
        name=name,
        state=state,
        provider_id=provider_id,
        offer_id=offer.id if offer else None,
        price_usd_micros=offer.price_usd_micros if offer else 0,
        seconds_min=offer.seconds_min if offer else 0,
        seconds_max=_seconds_max(offer, now) if offer else 0,
        region=offer.region if offer else region,
        # A label is only a wish; who reaches whom was measured, between nodes of one provider.
        fabric=gang_label(str(fabric) if fabric else "", executor, gang or "", key),
        label=f"{provider_id}/{meeting}" if (meeting := gang_label(label, executor, gang or "", key)) else "",
        has_failed_link=has_failed_link,
        executor=executor,
        is_measured=measured_at is not None,
        failures=failures,
        successes=successes,
        groups=groups,
        isolation=isolation or "none",
        has_egress=bool(has_egress),
        lent=frozenset(lent or ()),
        open_seconds=open_seconds,
    )


def _links(now: datetime) -> list[Link]:
    """What was measured between nodes that are there, and is not too old to be believed.

    One that is away may not keep a new node, which it was never measured with, out of the others' group.
    """
    there = {"a__state": NodeState.ONLINE, "b__state": NodeState.ONLINE}
    rows = FabricLink.objects.filter(measured_at__gt=links.fresh_after(now), **there).order_by("a", "b")
    return [Link(a, b, is_good) for a, b, is_good in rows.values_list("a_id", "b_id", "is_reachable")]


def _offers_by_node(now: datetime) -> dict[UUID, _OfferFacts]:
    rows = Offer.objects.filter(is_open=True).values_list(
        "id", "node_id", "price_usd_micros_per_device_hour", "seconds_min", "seconds_max", "region", "available_until"
    )
    offers = map(_OfferFacts._make, rows)
    return {offer.node_id: offer for offer in offers if offer.available_until is None or offer.available_until > now}


def _groups_by_node(leased: set[UUID]) -> dict[UUID, tuple[DeviceGroup, ...]]:
    rows = (
        Device.objects.filter(is_healthy=True)
        .order_by("node_id", "index")
        .values_list("id", "node_id", "kind", "model", "memory_mib", "flops_per_second")
    )
    by_node: defaultdict[UUID, dict[tuple[str, str, int], list[_DeviceFacts]]] = defaultdict(dict)
    for device in map(_DeviceFacts._make, rows):
        by_node[device.node_id].setdefault((device.kind, device.model, device.memory_mib), []).append(device)
    return {node_id: tuple(_group(alike, leased) for alike in groups.values()) for node_id, groups in by_node.items()}


def _group(alike: list[_DeviceFacts], leased: set[UUID]) -> DeviceGroup:
    first = alike[0]
    return DeviceGroup(
        kind=first.kind,
        model=first.model,
        memory_mib=first.memory_mib,
        flops_per_second=_slowest(device.flops_per_second for device in alike),
        total=len(alike),
        free=tuple(device.id for device in alike if device.id not in leased),
    )


def _slowest(measured: Iterable[dict[str, float]]) -> dict[str, float]:
    """Of each type that every device was measured in, the slowest figure."""
    all_of_them = list(measured)
    shared = set(all_of_them[0]).intersection(*all_of_them[1:])
    return {dtype: min(one[dtype] for one in all_of_them) for dtype in shared}


def _seconds_max(offer: _OfferFacts, now: datetime) -> float:
    left = (offer.available_until - now).total_seconds() if offer.available_until else float("inf")
    return min(float(offer.seconds_max), left)
