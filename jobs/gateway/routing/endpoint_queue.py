"""The queue of one endpoint: who waits, who is answered, and what is counted until the next control-plane sync."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from jobs.gateway.engines.tokens import Ratio
from jobs.gateway.engines.upstream import Announced, Upstream
from jobs.gateway.inference_request import InferenceRequest
from jobs.gateway.messages import ReplicaRow
from jobs.gateway.routing.capabilities import Need
from jobs.gateway.routing.fair_queue import FairQueue
from jobs.gateway.routing.replica_view import ReplicaView

Pair = tuple[ReplicaRow, ReplicaView]


class EndpointQueue:
    """One endpoint: its waiting requests, and its counts since the last control-plane sync."""

    def __init__(self, endpoint_id: UUID) -> None:
        self.endpoint_id = endpoint_id
        self.waiting: FairQueue[Slot] = FairQueue()
        self.ratio = Ratio()
        self.in_flight = 0
        self.arrived = self.failed = self.refused = 0
        self.queue_seconds_max = 0.0
        self.first_tokens_p95: float | None = None
        self.pairs: list[Pair] = []  # of these announcements and rows, until there are others
        self.paired: tuple[Mapping[UUID, Announced], Sequence[ReplicaRow]] = ({}, ())


@dataclass(eq=False)
class Slot:
    """One request's slot at a replica, until it is released."""

    lease_id: UUID
    version: int
    engine: Announced
    upstream: Upstream
    view: ReplicaView
    queue: EndpointQueue
    why: str  # this one
    is_released: bool = False

    def release(self) -> None:
        """Give it to the next; harmless to repeat."""
        if not self.is_released:
            self.is_released = True
            self.view.in_flight -= 1
            self.queue.in_flight -= 1
            self.queue.waiting.pump()


@dataclass(frozen=True, slots=True)
class Search:
    """What a request looks for."""

    request: InferenceRequest
    queue: EndpointQueue
    needs: Sequence[Need]
    avoided: Collection[UUID] = ()  # leases that failed it
