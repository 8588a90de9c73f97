"""Who gets which replica, and when: views, queues and counts of every endpoint, and where a request waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from jobs.gateway import capabilities, replica_view, router
from jobs.gateway.asked import Asked
from jobs.gateway.capabilities import Need
from jobs.gateway.errors import ApiError
from jobs.gateway.replica_view import ReplicaView
from jobs.gateway.table import EndpointLoad, EndpointRow, ReplicaLoad, ReplicaRow
from jobs.gateway.tokens import Ratio
from jobs.gateway.upstream import Announced, Replicas, Upstream
from jobs.gateway.waiting import Line, QueueFull, retry_after

QUEUE_SECONDS_MAX = 60.0  # in the queue while there are replicas; without any it is the endpoint's wake_seconds
LOOK_SECONDS = 0.05  # while somebody waits: who can be reached may have changed
NO_REPLICA_RETRY_SECONDS = 10
MASK = (1 << 32) - 1

Pair = tuple[ReplicaRow, ReplicaView]


class Directory(Protocol):
    """What the newest table says."""

    def endpoint(self, endpoint_id: UUID) -> EndpointRow | None:
        """By its id."""

    def replicas_of(self, endpoint_id: UUID) -> Sequence[ReplicaRow]:
        """Leases behind an endpoint, whether or not they can be reached; what was returned does not change any more."""


class Desk:
    """What is counted of one endpoint, and who waits for it."""

    def __init__(self, endpoint_id: UUID) -> None:
        self.endpoint_id = endpoint_id
        self.line: Line[Place] = Line()
        self.ratio = Ratio()
        self.in_flight = 0
        self.arrived = self.failed = self.refused = 0
        self.queue_seconds_max = 0.0
        self.first_tokens_p95: float | None = None
        self.pairs: list[Pair] = []  # of these announcements and rows, until there are others
        self.paired: tuple[Mapping[UUID, Announced], Sequence[ReplicaRow]] = ({}, ())


@dataclass(eq=False)
class Place:
    """One request's place at a replica, until it is released."""

    lease_id: UUID
    version: int
    engine: Announced
    upstream: Upstream
    view: ReplicaView
    desk: Desk
    why: str  # this one
    is_released: bool = False

    def release(self) -> None:
        """Give it to the next; harmless to repeat."""
        if not self.is_released:
            self.is_released = True
            self.view.in_flight -= 1
            self.desk.in_flight -= 1
            self.desk.line.pump()


@dataclass(frozen=True, slots=True)
class Search:
    """What a request looks for."""

    asked: Asked
    desk: Desk
    needs: Sequence[Need]
    avoided: Collection[UUID] = ()  # leases that failed it


class Placing:
    """All replicas and queues of this gateway."""

    def __init__(
        self, replicas: Replicas, directory: Directory, on_wanted: Callable[[UUID], None], clock: Callable[[], float]
    ) -> None:
        self._replicas, self._directory, self._on_wanted, self._clock = replicas, directory, on_wanted, clock
        self._views: dict[UUID, ReplicaView] = {}
        self._desks: dict[UUID, Desk] = {}
        self._looking: asyncio.Task[None] | None = None

    def desk(self, endpoint_id: UUID) -> Desk:
        """Of an endpoint."""
        desk = self._desks.get(endpoint_id)
        if desk is None:
            desk = self._desks[endpoint_id] = Desk(endpoint_id)
        return desk

    def views(self) -> Mapping[UUID, ReplicaView]:
        """Of every replica that can be reached now; of others nothing is kept but what is still under way."""
        announced = self._replicas.announced()
        for lease_id in [lease for lease, view in self._views.items() if lease not in announced and not view.in_flight]:
            del self._views[lease_id]
        return {lease_id: self._view(each) for lease_id, each in announced.items()}

    def take(self, search: Search) -> Place | None:
        """A place at once, or None: those that failed this request are tried again only where there is no other."""
        desk = search.desk
        able = [
            pair
            for pair in self._pairs(desk)
            if not pair[1].why and capabilities.can_answer(search.needs, pair[1].announced.capabilities)
        ]
        if search.avoided:
            able = [pair for pair in able if pair[0].lease_id not in search.avoided] or able
        chosen = self._choose(search, able) if able else None
        upstream = self._replicas.upstream(chosen[0].lease_id) if chosen is not None else None
        if chosen is None or upstream is None:
            return None
        row, view, why = chosen
        view.in_flight += 1
        desk.in_flight += 1
        return Place(row.lease_id, row.version, view.announced, upstream, view, desk, why)

    async def wait(self, search: Search, *, seconds: float | None = None, is_first: bool = False) -> Place:
        """A place, in turn. Raises ApiError: 400 what no replica can, 429 too many wait, 503 none is ready in time."""
        asked, desk = search.asked, search.desk
        place = self.take(search) if is_first or not len(desk.line) else None
        if place is not None:
            return place
        ready = self._ready(desk)
        capabilities.refuse_lacking(search.needs, [view.announced for _, view in ready])
        started, bound = self._clock(), seconds or (QUEUE_SECONDS_MAX if ready else asked.endpoint.limits.wake_seconds)
        try:
            waiter = desk.line.join(asked.grant.key_id, lambda: self.take(search), started, is_first=is_first)
        except QueueFull:
            desk.refused += 1
            raise self._busy(search, "too many requests wait for this model already") from None
        if not ready:
            self._on_wanted(asked.endpoint.endpoint_id)
        self._look()
        try:
            async with asyncio.timeout(max(0.0, min(started + bound, asked.deadline) - self._clock())):
                place = await waiter.future
            return place
        except TimeoutError:
            desk.refused += 1
            raise self._too_late(search, self._clock() - started) from None
        finally:
            desk.line.leave(asked.grant.key_id, waiter)
            if place is None and waiter.future.done() and not waiter.future.cancelled():
                waiter.future.result().release()  # it came in the moment in which nobody waited for it any more
            desk.queue_seconds_max = max(desk.queue_seconds_max, self._clock() - started)

    def pump(self) -> None:
        """Who can be reached may have changed: hand out what there is."""
        for desk in self._desks.values():
            if len(desk.line):
                desk.line.pump()

    def loads(self) -> list[EndpointLoad]:
        """Of every endpoint that anybody asked for; what is counted since the last call begins anew."""
        now, found = self._clock(), []
        for desk in list(self._desks.values()):
            queued = len(desk.line)
            load = EndpointLoad(
                endpoint_id=desk.endpoint_id,
                in_flight=desk.in_flight,
                queued=queued,
                queue_seconds_max=round(max(desk.queue_seconds_max, desk.line.seconds_waited(now)), 3),
                arrived=desk.arrived,
                failed=desk.failed,
                refused=desk.refused,
                is_wanted=queued > 0 and not self._ready(desk),
            )
            if not (load.arrived or load.in_flight or queued) and self._directory.endpoint(desk.endpoint_id) is None:
                del self._desks[desk.endpoint_id]
            desk.arrived = desk.failed = desk.refused = 0
            desk.queue_seconds_max = 0.0
            found.append(load)
        return found

    def replica_loads(self) -> list[ReplicaLoad]:
        """Of every replica that can be reached."""
        return [view.load(lease_id) for lease_id, view in self.views().items()]

    def judge(self) -> None:
        """Put aside who is far slower than its peers; and keep each endpoint's time to the first token."""
        now = self._clock()
        for desk in self._desks.values():
            views = [view for _, view in self._pairs(desk)]
            for view, why in replica_view.slow_ones(views):
                view.put_aside(now, why)
            firsts = [p95 for view in views if (p95 := view.first_token_p95()) is not None]
            desk.first_tokens_p95 = max(firsts, default=None)

    async def close(self) -> None:
        """Nobody waits any more."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    def _view(self, announced: Announced) -> ReplicaView:
        view = self._views.get(announced.lease_id)
        if view is None:
            view = self._views[announced.lease_id] = ReplicaView(announced, self._clock())
        view.announced = announced  # it may say something else after a new connection
        return view

    def _pairs(self, desk: Desk) -> list[Pair]:
        announced, rows = self._replicas.announced(), self._directory.replicas_of(desk.endpoint_id)
        if announced is not desk.paired[0] or rows is not desk.paired[1]:
            desk.pairs = [
                (row, self._view(each))
                for row in rows
                if row.state != "draining" and (each := announced.get(row.lease_id)) is not None
            ]
            desk.paired = announced, rows
        return desk.pairs

    def _ready(self, desk: Desk) -> list[Pair]:
        return [pair for pair in self._pairs(desk) if not pair[1].why]

    def _choose(self, search: Search, pairs: list[Pair]) -> tuple[ReplicaRow, ReplicaView, str] | None:
        endpoint = self._directory.endpoint(search.desk.endpoint_id) or search.asked.endpoint
        if len(pairs) == 1:
            return (*pairs[0], "the only one") if pairs[0][1].in_flight < endpoint.limits.in_flight else None
        unknown = 0.0
        candidates = []
        for row, view in pairs:
            seconds = view.seconds
            if seconds is None:
                seconds = unknown = unknown or replica_view.assumed_seconds(other for _, other in pairs)
            candidates.append(
                router.Candidate(
                    row.lease_id,
                    row.version,
                    view.in_flight,
                    endpoint.limits.in_flight,
                    max(seconds, 1e-6),
                    row.usd_micros_per_hour,
                )
            )
        is_numbered = any(each.version != candidates[0].version for each in candidates)
        conversation = router.conversation_of(search.asked, is_numbered=is_numbered)
        choice = router.choose(candidates, endpoint.versions, conversation, draw=search.asked.request_id.int & MASK)
        if choice is None:
            return None
        return (*next(pair for pair in pairs if pair[0].lease_id == choice.lease_id), choice.why)

    def _look(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look_until_empty())

    async def _look_until_empty(self) -> None:
        while any(len(desk.line) for desk in self._desks.values()):
            await asyncio.sleep(LOOK_SECONDS)
            self.pump()

    def _busy(self, search: Search, message: str) -> ApiError:
        views = [view for _, view in self._ready(search.desk)]
        capacity = max(1, len(views)) * search.asked.endpoint.limits.in_flight
        after = retry_after(len(search.desk.line), capacity, replica_view.assumed_seconds(views))
        return ApiError(
            429, "model_busy", f"{message}; try again in {after} s", type="rate_limit_error", retry_after=after
        )

    def _too_late(self, search: Search, waited: float) -> ApiError:
        if self._ready(search.desk):
            return self._busy(search, f"no replica had room within {waited:.0f} s")
        message = f"no replica of this model was ready within {waited:.0f} s; more were asked for"
        return ApiError(
            503, "model_not_ready", message, type="server_error", retry_after=float(NO_REPLICA_RETRY_SECONDS)
        )
