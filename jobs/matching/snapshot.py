"""The fleet at one moment, in columns: what the matcher knows, and all that it knows."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from jobs.matching.exclusion_reasons import ONLINE, STATE_REASONS, Why


class DeviceGroup(NamedTuple):
    """Equal devices of one node. A job's devices on a node are all of one group."""

    kind: str
    model: str
    memory_mib: int
    flops_per_second: Mapping[str, float]  # dtype -> measured FLOP/s of one device, the slowest of the group
    total: int
    free: tuple[UUID, ...]  # devices without a live lease, in the order of their index
    memory_bytes_per_second: float = 0.0  # measured, of the slowest that was; 0: none was
    compute_capability: tuple[int, int] = (0, 0)  # (major, minor), the lowest of the group; (0, 0): not known
    cuda: tuple[int, int] = (0, 0)  # that its driver supports; (0, 0): not known


class DeviceClass(NamedTuple):
    """What the devices of a group are, apart from how fast they are and how many."""

    kind: str
    model: str
    memory_mib: int


class NodeRow(NamedTuple):
    """One node as it enters a snapshot."""

    node_id: UUID
    name: str
    state: str
    provider_id: UUID
    offer_id: UUID | None  # None: no open offer
    price_usd_micros: int  # per device and hour; 0 without an offer
    seconds_min: int
    seconds_max: float  # of the offer, or until it closes: whichever is less
    region: str
    fabric: str  # the group of nodes that reach each other by measured links; empty: none
    executor: str
    is_measured: bool
    failures: int
    successes: int
    groups: tuple[DeviceGroup, ...]
    isolation: str = "none"
    has_egress: bool = False
    lent: frozenset[str] = frozenset()  # labels of the folders that it lends
    has_token_receipts: bool = False  # its agent may be paid in tokens
    is_server: bool = False  # its agent opens tunnels to gateways
    runtime_features: frozenset[str] = frozenset()  # what its runtimes know that earlier ones did not
    open_seconds: float = math.inf  # until it closes, by its declared hours and windows
    label: str = ""  # the fabric that its provider declared, whoever it reaches
    has_failed_link: bool = False  # to a node of that label
    wallets: frozenset[str] = frozenset()  # tokens in which a contract can pay its provider
    organisation_id: UUID | None = None  # its provider's
    cpus: int = 0  # cores, of all its devices together
    ram_mib: int = 0  # memory that its leases share
    disk_mib: int = 0  # free when it last said so: what runs there has taken its part already
    shm_mib: int = 0  # /dev/shm of all its devices together; 0: its agent is from before it was asked
    devices: int = 0  # all, those that may not be rented now as well: what a lease gets is its share of these
    allows_strangers: bool = False  # though it isolates nothing, it takes jobs of other organisations too


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """Equal positions of all columns are one node. `class_ids` points, group by group, into `classes`."""

    taken_at: datetime
    node_ids: tuple[UUID, ...]
    names: tuple[str, ...]
    states: tuple[str, ...]
    provider_ids: tuple[UUID, ...]
    offer_ids: tuple[UUID | None, ...]
    prices_usd_micros: tuple[int, ...]
    seconds_min: tuple[int, ...]
    seconds_max: tuple[float, ...]
    regions: tuple[str, ...]
    fabrics: tuple[str, ...]
    executors: tuple[str, ...]
    are_measured: tuple[bool, ...]
    failures: tuple[int, ...]
    successes: tuple[int, ...]
    groups: tuple[tuple[DeviceGroup, ...], ...]
    isolations: tuple[str, ...]
    egresses: tuple[bool, ...]
    lent: tuple[frozenset[str], ...]
    token_receipts: tuple[bool, ...]
    servers: tuple[bool, ...]
    runtime_features: tuple[frozenset[str], ...]
    open_seconds: tuple[float, ...]
    labels: tuple[str, ...]
    have_failed_links: tuple[bool, ...]
    wallets: tuple[frozenset[str], ...]
    organisation_ids: tuple[UUID | None, ...]
    allow_strangers: tuple[bool, ...]
    cpus: tuple[int, ...]
    ram_mib: tuple[int, ...]
    disk_mib: tuple[int, ...]
    shm_mib: tuple[int, ...]
    devices: tuple[int, ...]
    class_ids: tuple[tuple[int, ...], ...]
    classes: tuple[DeviceClass, ...]
    # The same for every demand, so sorted once: who takes nothing at all, and who has devices of one class only.
    closed: Mapping[Why, int]
    rows_by_class: tuple[tuple[int, ...], ...]
    rows_mixed: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.node_ids)


def snapshot_of(rows: Iterable[NodeRow], *, taken_at: datetime) -> FleetSnapshot:
    """The columns of `rows`, in their order."""
    rows = list(rows)
    known: dict[DeviceClass, int] = {}
    class_ids = tuple(
        tuple(known.setdefault(DeviceClass(*group[:3]), len(known)) for group in row.groups) for row in rows
    )
    closed: Counter[Why] = Counter()
    rows_by_class: list[list[int]] = [[] for _ in known]
    rows_mixed = []
    for position, (row, ids) in enumerate(zip(rows, class_ids, strict=True)):
        why = _closed_reason(row)
        if why is not None:
            closed[why] += 1
        elif len(ids) == 1:
            rows_by_class[ids[0]].append(position)
        else:
            rows_mixed.append(position)
    of_all = zip(*rows, strict=True) if rows else ((),) * len(NodeRow._fields)
    columns: dict[str, tuple[Any, ...]] = dict(zip(NodeRow._fields, of_all, strict=True))
    return FleetSnapshot(
        taken_at=taken_at,
        node_ids=columns["node_id"],
        names=columns["name"],
        states=columns["state"],
        provider_ids=columns["provider_id"],
        offer_ids=columns["offer_id"],
        prices_usd_micros=columns["price_usd_micros"],
        seconds_min=columns["seconds_min"],
        seconds_max=columns["seconds_max"],
        regions=columns["region"],
        fabrics=columns["fabric"],
        executors=columns["executor"],
        are_measured=columns["is_measured"],
        failures=columns["failures"],
        successes=columns["successes"],
        groups=columns["groups"],
        isolations=columns["isolation"],
        egresses=columns["has_egress"],
        lent=columns["lent"],
        token_receipts=columns["has_token_receipts"],
        servers=columns["is_server"],
        runtime_features=columns["runtime_features"],
        open_seconds=columns["open_seconds"],
        labels=columns["label"],
        have_failed_links=columns["has_failed_link"],
        wallets=columns["wallets"],
        organisation_ids=columns["organisation_id"],
        allow_strangers=columns["allows_strangers"],
        cpus=columns["cpus"],
        ram_mib=columns["ram_mib"],
        disk_mib=columns["disk_mib"],
        shm_mib=columns["shm_mib"],
        devices=columns["devices"],
        class_ids=class_ids,
        classes=tuple(known),
        closed=closed,
        rows_by_class=tuple(map(tuple, rows_by_class)),
        rows_mixed=tuple(rows_mixed),
    )


def _closed_reason(row: NodeRow) -> Why | None:
    """Why this node takes nothing from anybody."""
    if row.state != ONLINE:
        return STATE_REASONS.get(row.state, Why.OFFLINE)
    if not row.is_measured:
        return Why.UNMEASURED
    return Why.NO_OFFER if row.offer_id is None else None


def is_model(wanted: str, model: str) -> bool:
    """Whether every word of `wanted` is a word of `model`: H100 is in "NVIDIA H100 80GB HBM3", A100 not in "A1000"."""
    words = _words(model)
    known = {*words, *(first + second for first, second in pairwise(words))}
    return all(word in known for word in _words(wanted))


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())
