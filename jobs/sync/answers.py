"""What a sync is answered with; `server.py` calls it in steps 3 and 4.

It runs in threads: these are the only lines of the sync process that see the database.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ParamSpec, TypeVar
from uuid import UUID

from django.db import connection

from jobs.endpoints.gateways import gateway_list
from jobs.models import Lease
from jobs.running import assignments, reports
from marketplace.foundation import signing
from marketplace.foundation.errors import SoukError, StateConflict
from marketplace.nodes.fabrics import links
from marketplace.nodes.inventory import devices
from marketplace.nodes.models import Node
from provider_agent.protocol import (
    Desired,
    GatewayList,
    LinkDemand,
    SignedGateways,
    SyncRequest,
    UpdateOrder,
    sign_gateways,
)

TRIES_MAX = 3  # when another process moved the same rows first

_NOTE = """
    UPDATE nodes_node AS node SET synced_ms = sync.at, boot_id = sync.boot
    FROM unnest(%s::uuid[], %s::uuid[], %s::bigint[]) AS sync (id, boot, at)
    WHERE node.id = sync.id AND node.synced_ms <= sync.at
    RETURNING node.id
"""

log = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Answer:
    """What should be on a node."""

    version: str
    node_state: str
    desired: list[Desired]
    forget: list[UUID]
    check: UUID | None = None
    link: LinkDemand | None = None
    update: UpdateOrder | None = None
    gateways: SignedGateways | None = None

    @property
    def is_idle(self) -> bool:
        """Nothing runs there, nothing is to be done."""
        return not self.desired and not self.forget and self.check is None and self.link is None


@dataclass(frozen=True)
class Idle:
    """A sync that reports no lease and no facts."""

    node_id: UUID
    boot_id: UUID
    time_ms: int | None  # when the node signed it; None when it was taken in before


def take_in(node_id: UUID, request: SyncRequest, received_at: datetime, time_ms: int) -> Answer:
    """Apply what the node reports of itself and its leases; harmless to repeat. Returns the answer to it.

    One that was signed before the newest which any process took in is late or replayed: it is answered, not believed.
    """
    is_newest = Node.objects.filter(pk=node_id, synced_ms__lte=time_ms).update(synced_ms=time_ms)
    node = Node.objects.get(pk=node_id)
    if not is_newest:
        log.warning("A sync older than the newest was not taken in.", extra={"node_id": str(node_id)})
        return _answer(node, request)
    if request.facts is not None:
        try:
            node = devices.update_facts(node, request.facts)
        except StateConflict:
            raise
        except SoukError as error:
            # Its leases must go on, whatever is wrong with its account of itself.
            log.warning("A node's facts were refused: %s", error.message, extra={"node_id": str(node_id)})
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            reports.apply_reports(
                node, request.leases, boot_id=request.boot_id, received_at=received_at, signed_ms=time_ms
            )
            break
        except StateConflict:
            if not tries_left:
                raise
    return _answer(node, request)


def answer_for(node_id: UUID, request: SyncRequest) -> Answer:
    """What should be on the node, given what it reports."""
    return _answer(Node.objects.get(pk=node_id), request)


def answer_idle(asked: Sequence[Idle]) -> dict[Idle, Answer]:
    """The answers to all those nodes at once that have nothing to do, in three queries; the others are not in it.

    What `take_in` does for a sync without leases and facts, and `answer_for`, for many: after a restart of this process
    everybody comes within seconds.
    """
    latest = {each.node_id: each for each in asked}  # one of a node: the latest that came
    news = [each for each in latest.values() if each.time_ms is not None]
    late = {each.node_id for each in news} - _newest_of(news)
    leased = set(Lease.objects.live().filter(node__in=latest).values_list("node_id", flat=True))
    nodes = Node.objects.filter(pk__in=latest.keys() - leased - late, wanted_probe_id=None)
    idle = ((node, assignments.nothing_desired(node)) for node in nodes)
    return {latest[node.pk]: _compose(node, version, [], [], link=None) for node, version in idle}


def with_connection(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call it, and give the thread's connection back to the pool, whatever happens."""
    try:
        return call(*args, **kwargs)
    finally:
        connection.close()


def _answer(node: Node, request: SyncRequest) -> Answer:
    version, desired, forget = assignments.desired_state(node, request.leases)
    gateways = gateway_list(node) if desired else None
    if gateways is not None:
        version = _with_gateways(version, gateways)
    answer = _compose(node, version, desired, forget, link=links.demand_of(node))
    return answer if gateways is None else replace(answer, gateways=sign_gateways(signing.server_key(), gateways))


def _with_gateways(version: str, gateways: GatewayList) -> str:
    """As long as it was, and another one wherever there is another gateway."""
    places = "".join(f"\n{place.url} {place.public_key}" for place in gateways.gateways)
    return hashlib.sha256((version + places).encode()).hexdigest()[: len(version)]


def _newest_of(news: Sequence[Idle]) -> set[UUID]:
    """Records when each was signed; returns those that are newer than every applied one."""
    if not news:
        return set()
    with connection.cursor() as cursor:
        columns = ([each.node_id for each in news], [each.boot_id for each in news], [each.time_ms for each in news])
        cursor.execute(_NOTE, columns)
        return {node_id for (node_id,) in cursor.fetchall()}


def _compose(
    node: Node, version: str, desired: list[Desired], forget: list[UUID], *, link: LinkDemand | None
) -> Answer:
    check = node.wanted_check_id
    # During a device check or a probe the answer has no update: a restart would break it off.
    is_busy = check is not None or link is not None
    update = UpdateOrder(version=node.wanted_version) if node.wanted_version and not is_busy else None
    for demanded in (check, link.probe_id if link else None):
        version += f"-{demanded.hex[:12]}" if demanded else ""
    version += f"-{update.version}"[:28] if update else ""
    return Answer(version, node.state, desired, forget, check, link, update)
