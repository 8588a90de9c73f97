"""What a sync is answered with. Runs in threads: these are the only lines of the sync process that see the database."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import ParamSpec, TypeVar
from uuid import UUID

from django.db import connection

from jobs import assignments, reports
from marketplace.foundation.errors import SoukError, StateConflict
from marketplace.nodes import inventory, links
from marketplace.nodes.models import Node
from provider_agent.protocol import Desired, LinkDemand, SyncRequest, UpdateOrder

TRIES_MAX = 3  # when another process moved the same rows first

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

    @property
    def is_idle(self) -> bool:
        """Nothing runs there, nothing is to be done."""
        return not self.desired and not self.forget and self.check is None and self.link is None


def take_in(node_id: UUID, request: SyncRequest, received_at: datetime, time_ms: int) -> Answer:
    """What the node says of itself and its leases is known now; harmless to repeat. Returns the answer to it.

    One that was signed before the newest which any process took in is late or replayed: it is answered, not believed.
    """
    is_newest = Node.objects.filter(pk=node_id, synced_ms__lte=time_ms).update(synced_ms=time_ms)
    node = Node.objects.get(pk=node_id)
    if not is_newest:
        log.warning("A sync older than the newest was not taken in.", extra={"node_id": str(node_id)})
        return _answer(node, request)
    if request.facts is not None:
        try:
            node = inventory.update_facts(node, request.facts)
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
    """What should be on the node, given what it says is there."""
    return _answer(Node.objects.get(pk=node_id), request)


def with_connection(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call it, and give the thread's connection back to the pool, whatever happens."""
    try:
        return call(*args, **kwargs)
    finally:
        connection.close()


def _answer(node: Node, request: SyncRequest) -> Answer:
    version, desired, forget = assignments.desired_state(node, request.leases)
    check, link = node.wanted_check_id, links.demand_of(node)
    # While a check or a probe goes on nothing is said of updates: a restart would break it off.
    is_busy = check is not None or link is not None
    update = UpdateOrder(version=node.wanted_version) if node.wanted_version and not is_busy else None
    for demanded in (check, link.probe_id if link else None):
        version += f"-{demanded.hex[:12]}" if demanded else ""
    version += f"-{update.version}"[:28] if update else ""
    return Answer(version, node.state, desired, forget, check, link, update)
