"""The database's fleet as a snapshot for the matcher, in six queries whatever its size."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper, F, Q, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from jobs.escrow import delegations
from jobs.matching.fabrics import Link, groups_of
from jobs.matching.snapshot import DeviceGroup, FleetSnapshot, NodeRow, snapshot_of
from jobs.models import LeaseDevice
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.nodes.fabrics import links
from marketplace.nodes.fabrics.overlays import gang_label
from marketplace.nodes.inventory import identity
from marketplace.nodes.inventory.gpu_versions import compute_capability_of, version_of
from marketplace.nodes.models import Device, FabricLink, Node, Offer
from marketplace.nodes.models.node import isolation_of
from marketplace.nodes.offering import schedule
from marketplace.nodes.states import NodeState
from provider_agent.protocol import BEAT_SECONDS_IDLE, DISK_RESERVE_MIB, MISSES_UNTIL_SUSPECT, leases_memory_mib

FLUSH_SECONDS = 10  # beats reach the database in bulk, some seconds late
SUSPECT_AFTER = timedelta(seconds=MISSES_UNTIL_SUSPECT * BEAT_SECONDS_IDLE + FLUSH_SECONDS)
SILENT = "silent"  # online by its state, but suspect: nothing new is placed there
SUSPENDED = "suspended"  # the same, until the node passes a check
CLOSED = "closed"  # online, but by its declared hours it takes nothing now
NODES_SMALL = 500  # a fleet of so many is read each time, in some 25 ms
SUPPLY_SECONDS = 5.0  # how old the supply of a larger one may be; 10,000 nodes take 0.13 s of a core to read


class _DeviceFacts(NamedTuple):
    id: UUID
    node_id: UUID
    kind: str
    model: str
    memory_mib: int
    memory_bytes_per_second: float
    is_healthy: bool
    compute_capability: str | None
    cuda: str | None
    flops: str  # dtype -> FLOP/s, as JSON


class _NodeDevices(NamedTuple):
    """The devices of one node that may be rented, and how many it has in all."""

    groups: tuple[DeviceGroup, ...] = ()
    total: int = 0


class _NodeFacts(NamedTuple):
    id: UUID
    name: str
    state: str
    provider_id: UUID
    organisation_id: UUID
    allows_strangers: bool
    region: str
    fabric: str
    fabric_key: str
    executor: str
    failures: int
    successes: int
    is_measured: bool
    is_silent: bool
    is_suspended: bool
    reported_isolation: str | None
    egress: str | None
    gang: str | None
    lent: str | None  # as JSON
    signs_tokens: str | None
    serves: str | None
    runtime_features: str | None  # as JSON
    cpu_count: int
    memory_mib: int
    disk_free_mib: str | None
    shm_mib: str | None
    hours: str  # the same


class _OfferFacts(NamedTuple):
    id: UUID
    node_id: UUID
    price_usd_micros: int
    seconds_min: int
    seconds_max: int
    region: str
    available_until: datetime | None


class _Supply(NamedTuple):
    """The fleet as if nothing were leased, and where in it each device is."""

    snapshot: FleetSnapshot
    row_of: dict[UUID, int]
    good_until: float  # of the monotonic clock


_supply: _Supply | None = None
_supply_lock = threading.Lock()


def take_snapshot() -> FleetSnapshot:
    """Every node that is not retired, with its open offer and its healthy devices, free or leased.

    Leases are current. Nodes, offers and devices of a large fleet may be SUPPLY_SECONDS old: a quote is an
    estimate, and placement reads the database for each slot again (and calls `forget_supply` where that refuses).
    """
    leased = set(LeaseDevice.objects.filter(is_live=True).values_list("device_id", flat=True))
    supply = _current_supply()
    groups = list(supply.snapshot.groups)
    for row in {supply.row_of[device_id] for device_id in leased if device_id in supply.row_of}:
        groups[row] = tuple(
            group._replace(free=tuple(device for device in group.free if device not in leased)) for group in groups[row]
        )
    return replace(supply.snapshot, groups=tuple(groups))


def forget_supply() -> None:
    """The next snapshot reads everything."""
    global _supply  # noqa: PLW0603 - one memory a process
    _supply = None


# --- below


def _current_supply() -> _Supply:
    global _supply  # noqa: PLW0603
    with _supply_lock:  # who comes meanwhile takes what this one reads
        known = _supply
        if known is not None and time.monotonic() < known.good_until:
            return known
        with _garbage_waits():
            snapshot = _read_supply()
        seconds = SUPPLY_SECONDS if len(snapshot) > NODES_SMALL else 0
        row_of = {
            device: row for row, groups in enumerate(snapshot.groups) for group in groups for device in group.free
        }
        _supply = _Supply(snapshot, row_of, time.monotonic() + seconds)
        return _supply


@contextlib.contextmanager
def _garbage_waits() -> Iterator[None]:
    """No cyclic garbage is looked for meanwhile: among so many new objects that takes longer than the reading."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read_supply() -> FleetSnapshot:
    now = clock.now()
    devices = _devices_by_node()
    offers = _offers_by_node(now)
    measured = _links(now)
    wallets = delegations.wallets_by_node()
    fabrics, failed = groups_of(measured), {node for a, b, is_good in measured if not is_good for node in (a, b)}
    # Texts and truth values in place of JSON and times: of 10,000 nodes, decoding those is most of the work.
    nodes = (
        Node.objects.exclude(state=NodeState.RETIRED)
        .annotate(
            is_measured=_is(measured_at__isnull=False),
            is_silent=_is(last_seen_at__isnull=False, last_seen_at__lt=now - SUSPECT_AFTER),
            is_suspended=_is(suspended_at__isnull=False),
            organisation_id=F("provider__organisation_id"),
            hours=_text("schedule"),
            reported_isolation=KeyTextTransform("isolation", "facts"),
            egress=KeyTextTransform("egress", "facts"),
            gang=KeyTextTransform("gang", "facts"),
            lent=KeyTextTransform("lent", "facts"),
            signs_tokens=KeyTextTransform("has_token_receipts", "facts"),
            serves=KeyTextTransform("is_server", "facts"),
            runtime_features=KeyTextTransform("runtime_features", "facts"),
            disk_free_mib=KeyTextTransform("disk_free_mib", "facts"),
            shm_mib=KeyTextTransform("shm_mib", "facts"),
        )
        .order_by("id")
        .values_list(*_NodeFacts._fields)
    )
    rows = []
    for node in map(_NodeFacts._make, nodes):
        with log_failures("A node cannot be read, and is left out of the fleet.", node_id=str(node.id)):
            rows.append(
                _node_row(
                    node,
                    offers.get(node.id),
                    devices.get(node.id, _NodeDevices()),
                    now,
                    fabric=fabrics.get(node.id),
                    has_failed_link=node.id in failed,
                    wallets=wallets.get(node.id, frozenset()),
                )
            )
    return snapshot_of(rows, taken_at=now)


def _node_row(
    node: _NodeFacts,
    offer: _OfferFacts | None,
    devices: _NodeDevices,
    now: datetime,
    *,
    fabric: UUID | None,
    has_failed_link: bool,
    wallets: frozenset[str],
) -> NodeRow:
    state, gang = node.state, node.gang or ""
    meeting = gang_label(node.fabric, node.executor, gang, node.fabric_key)
    hours = _decoded(node.hours)
    open_seconds = schedule.open_seconds(schedule.parse(hours), now) if hours else math.inf
    if state == NodeState.ONLINE:
        state = SILENT if node.is_silent else SUSPENDED if node.is_suspended else CLOSED if open_seconds <= 0 else state
    return NodeRow(
        node_id=node.id,
        name=node.name,
        state=state,
        provider_id=node.provider_id,
        offer_id=offer.id if offer else None,
        price_usd_micros=offer.price_usd_micros if offer else 0,
        seconds_min=offer.seconds_min if offer else 0,
        seconds_max=_seconds_max(offer, now) if offer else 0,
        region=offer.region if offer else node.region,
        # A label is only a request. Which nodes reach each other was measured, between nodes of one provider.
        fabric=gang_label(str(fabric) if fabric else "", node.executor, gang, node.fabric_key),
        label=f"{node.provider_id}/{meeting}" if meeting else "",
        has_failed_link=has_failed_link,
        wallets=wallets,
        executor=node.executor,
        is_measured=node.is_measured,
        failures=node.failures,
        successes=node.successes,
        groups=devices.groups,
        isolation=isolation_of(node.executor, node.reported_isolation),
        has_egress=node.egress == "true",
        lent=_labels(node.lent),
        has_token_receipts=node.signs_tokens == "true",
        is_server=node.serves == "true",
        runtime_features=_labels(node.runtime_features),
        open_seconds=open_seconds,
        organisation_id=node.organisation_id,
        allows_strangers=node.allows_strangers,
        cpus=node.cpu_count,
        ram_mib=leases_memory_mib(node.memory_mib),
        disk_mib=max(int(node.disk_free_mib or 0) - DISK_RESERVE_MIB, 0),
        shm_mib=int(node.shm_mib or 0),
        devices=devices.total,
    )


def _is(**conditions: Any) -> ExpressionWrapper[Any]:
    return ExpressionWrapper(Q(**conditions), output_field=BooleanField())


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


def _devices_by_node() -> dict[UUID, _NodeDevices]:
    rows = (
        Device.objects.exclude(node__state=NodeState.RETIRED)
        .exclude(fault=identity.GONE)  # it has no part of the node's memory, cores and disk any more
        .annotate(
            flops=_text("flops_per_second"),
            compute_capability=KeyTextTransform("compute_capability", "details"),
            cuda=KeyTextTransform("cuda", "details"),
        )
        .order_by("node_id", "index")
        .values_list(*_DeviceFacts._fields)
    )
    by_node: defaultdict[UUID, dict[tuple[str, str, int], list[_DeviceFacts]]] = defaultdict(dict)
    totals: Counter[UUID] = Counter()
    for device in map(_DeviceFacts._make, rows):
        totals[device.node_id] += 1
        if not device.is_healthy:
            continue
        by_node[device.node_id].setdefault((device.kind, device.model, device.memory_mib), []).append(device)
    found: dict[UUID, _NodeDevices] = {}
    for node_id, groups in by_node.items():
        with log_failures("A node's devices cannot be read, and are not offered.", node_id=str(node_id)):
            found[node_id] = _NodeDevices(tuple(_group(equal) for equal in groups.values()), totals[node_id])
    return found


def _group(equal: list[_DeviceFacts]) -> DeviceGroup:
    first = equal[0]
    return DeviceGroup(
        kind=first.kind,
        model=first.model,
        memory_mib=first.memory_mib,
        flops_per_second=_slowest([_figures(device.flops) for device in equal]),
        total=len(equal),
        free=tuple(device.id for device in equal),
        memory_bytes_per_second=min(
            (device.memory_bytes_per_second for device in equal if device.memory_bytes_per_second > 0), default=0.0
        ),
        compute_capability=min(compute_capability_of(device.model, device.compute_capability) for device in equal),
        cuda=min(version_of(device.cuda) for device in equal),
    )


def _slowest(measured: list[dict[str, float]]) -> dict[str, float]:
    """Of each type that every device was measured in, the slowest figure."""
    if len(measured) == 1:
        return measured[0]
    shared = set(measured[0]).intersection(*measured[1:])
    return {dtype: min(one[dtype] for one in measured) for dtype in shared}


def _text(field: str) -> Cast:
    return Cast(field, TextField())


@lru_cache(maxsize=100_000)
def _decoded(text: str) -> Any:
    """The value of a JSON text; do not change it. The text seldom differs from the previous read."""
    return json.loads(text)


@lru_cache(maxsize=100_000)
def _figures(text: str) -> dict[str, float]:
    """dtype -> FLOP/s of a JSON text, under the same conditions; raises for anything else."""
    return {str(dtype): float(figure) for dtype, figure in json.loads(text).items()}


@lru_cache(maxsize=1_000)
def _labels(text: str | None) -> frozenset[str]:
    return frozenset(json.loads(text) or () if text else ())


def _seconds_max(offer: _OfferFacts, now: datetime) -> float:
    left = (offer.available_until - now).total_seconds() if offer.available_until else math.inf
    return min(float(offer.seconds_max), left)
