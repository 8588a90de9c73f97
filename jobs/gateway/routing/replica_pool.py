"""Who gets which replica, and when: views, queues and counts of every endpoint, and where a request waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from jobs.gateway.engines.upstream import Announced, Replicas
from jobs.gateway.errors import ApiError
from jobs.gateway.messages import EndpointLoad, EndpointRow, ReplicaLoad, ReplicaRow
from jobs.gateway.routing import capabilities, replica_view, router
from jobs.gateway.routing.endpoint_queue import EndpointQueue, Pair, Search, Slot
from jobs.gateway.routing.fair_queue import QueueFull, retry_after
from jobs.gateway.routing.replica_view import ReplicaView

QUEUE_SECONDS_MAX = 60.0  # in the queue while there are replicas; without any it is the endpoint's wake_seconds
PUMP_SECONDS = 0.05  # while somebody waits: who can be reached may have changed
NO_REPLICA_RETRY_SECONDS = 10
MASK = (1 << 32) - 1


class Directory(Protocol):
    """The newest table."""

    def endpoint(self, endpoint_id: UUID) -> EndpointRow | None:
        """By its id."""

    def replicas_of(self, endpoint_id: UUID) -> Sequence[ReplicaRow]:
        """Leases behind an endpoint, whether or not they can be reached; what was returned does not change any more."""


class ReplicaPool:
    """All replicas and queues of this gateway."""

    def __init__(
        self, replicas: Replicas, directory: Directory, on_wanted: Callable[[UUID], None], clock: Callable[[], float]
    ) -> None:
        self._replicas, self._directory, self._on_wanted, self._clock = replicas, directory, on_wanted, clock
        self._views: dict[UUID, ReplicaView] = {}
        self._queues: dict[UUID, EndpointQueue] = {}
        self._pump_task: asyncio.Task[None] | None = None

    def queue(self, endpoint_id: UUID) -> EndpointQueue:
        """Of an endpoint."""
        queue = self._queues.get(endpoint_id)
        if queue is None:
            queue = self._queues[endpoint_id] = EndpointQueue(endpoint_id)
        return queue

    def views(self) -> Mapping[UUID, ReplicaView]:
        """Of every replica that can be reached now; others are kept only while they have requests in flight."""
        announced = self._replicas.announced()
        for lease_id in [lease for lease, view in self._views.items() if lease not in announced and not view.in_flight]:
            del self._views[lease_id]
        return {lease_id: self._view(each) for lease_id, each in announced.items()}

    def take(self, search: Search) -> Slot | None:
        """A slot at once, or None: those that failed this request are tried again only where there is no other."""
        queue = search.queue
        able = [
            pair
            for pair in self._pairs(queue)
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
        queue.in_flight += 1
        return Slot(row.lease_id, row.version, view.announced, upstream, view, queue, why)

    async def wait(self, search: Search, *, seconds: float | None = None, is_first: bool = False) -> Slot:
        """A slot, in turn. Raises ApiError: 400 what no replica can, 429 too many wait, 503 none is ready in time."""
        request, queue = search.request, search.queue
        slot = self.take(search) if is_first or not len(queue.waiting) else None
        if slot is not None:
            return slot
        ready = self._ready(queue)
        capabilities.refuse_lacking(search.needs, [view.announced for _, view in ready])
        started = self._clock()
        bound = seconds or (QUEUE_SECONDS_MAX if ready else request.endpoint.limits.wake_seconds)
        try:
            waiter = queue.waiting.join(request.grant.key_id, lambda: self.take(search), started, is_first=is_first)
        except QueueFull:
            queue.refused += 1
            raise self._busy(search, "too many requests wait for this model already") from None
        if not ready:
            self._on_wanted(request.endpoint.endpoint_id)
        self._start_pumping()
        try:
            async with asyncio.timeout(max(0.0, min(started + bound, request.deadline) - self._clock())):
                slot = await waiter.future
            return slot
        except TimeoutError:
            queue.refused += 1
            raise self._too_late(search, self._clock() - started) from None
        finally:
            queue.waiting.leave(request.grant.key_id, waiter)
            if slot is None and waiter.future.done() and not waiter.future.cancelled():
                waiter.future.result().release()  # it came in the moment in which nobody waited for it any more
            queue.queue_seconds_max = max(queue.queue_seconds_max, self._clock() - started)

    def pump(self) -> None:
        """Who can be reached may have changed: hand out what there is."""
        for queue in self._queues.values():
            if len(queue.waiting):
                queue.waiting.pump()

    def loads(self) -> list[EndpointLoad]:
        """For every endpoint with requests; the counts since the last call start again at 0."""
        now, found = self._clock(), []
        for queue in list(self._queues.values()):
            queued = len(queue.waiting)
            load = EndpointLoad(
                endpoint_id=queue.endpoint_id,
                in_flight=queue.in_flight,
                queued=queued,
                queue_seconds_max=round(max(queue.queue_seconds_max, queue.waiting.seconds_waited(now)), 3),
                arrived=queue.arrived,
                failed=queue.failed,
                refused=queue.refused,
                is_wanted=queued > 0 and not self._ready(queue),
            )
            if not (load.arrived or load.in_flight or queued) and self._directory.endpoint(queue.endpoint_id) is None:
                del self._queues[queue.endpoint_id]
            queue.arrived = queue.failed = queue.refused = 0
            queue.queue_seconds_max = 0.0
            found.append(load)
        return found

    def replica_loads(self) -> list[ReplicaLoad]:
        """Of every replica that can be reached."""
        return [view.load(lease_id) for lease_id, view in self.views().items()]

    def judge(self) -> None:
        """Put aside who is far slower than its peers; and keep each endpoint's time to the first token."""
        now = self._clock()
        for queue in self._queues.values():
            views = [view for _, view in self._pairs(queue)]
            for view, why in replica_view.slow_ones(views):
                view.put_aside(now, why)
            firsts = [p95 for view in views if (p95 := view.first_token_p95()) is not None]
            queue.first_tokens_p95 = max(firsts, default=None)

    async def close(self) -> None:
        """Nobody waits any more."""
        if self._pump_task is not None:
            self._pump_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pump_task

    def _view(self, announced: Announced) -> ReplicaView:
        view = self._views.get(announced.lease_id)
        if view is None:
            view = self._views[announced.lease_id] = ReplicaView(announced, self._clock())
        view.announced = announced  # it may announce something else after a new connection
        return view

    def _pairs(self, queue: EndpointQueue) -> list[Pair]:
        announced, rows = self._replicas.announced(), self._directory.replicas_of(queue.endpoint_id)
        if announced is not queue.paired[0] or rows is not queue.paired[1]:
            queue.pairs = [
                (row, self._view(each))
                for row in rows
                if row.state != "draining" and (each := announced.get(row.lease_id)) is not None
            ]
            queue.paired = announced, rows
        return queue.pairs

    def _ready(self, queue: EndpointQueue) -> list[Pair]:
        return [pair for pair in self._pairs(queue) if not pair[1].why]

    def _choose(self, search: Search, pairs: list[Pair]) -> tuple[ReplicaRow, ReplicaView, str] | None:
        endpoint = self._directory.endpoint(search.queue.endpoint_id) or search.request.endpoint
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
        conversation = router.conversation_of(search.request, is_numbered=is_numbered)
        choice = router.choose(candidates, endpoint.versions, conversation, draw=search.request.request_id.int & MASK)
        if choice is None:
            return None
        return (*next(pair for pair in pairs if pair[0].lease_id == choice.lease_id), choice.why)

    def _start_pumping(self) -> None:
        if self._pump_task is None or self._pump_task.done():
            self._pump_task = asyncio.get_running_loop().create_task(self._pump_until_empty())

    async def _pump_until_empty(self) -> None:
        while any(len(queue.waiting) for queue in self._queues.values()):
            await asyncio.sleep(PUMP_SECONDS)
            self.pump()

    def _busy(self, search: Search, message: str) -> ApiError:
        views = [view for _, view in self._ready(search.queue)]
        capacity = max(1, len(views)) * search.request.endpoint.limits.in_flight
        after = retry_after(len(search.queue.waiting), capacity, replica_view.assumed_seconds(views))
        return ApiError(
            429, "model_busy", f"{message}; try again in {after} s", type="rate_limit_error", retry_after=after
        )

    def _too_late(self, search: Search, waited: float) -> ApiError:
        if self._ready(search.queue):
            return self._busy(search, f"no replica had room within {waited:.0f} s")
        message = f"no replica of this model was ready within {waited:.0f} s; more were asked for"
        return ApiError(
            503, "model_not_ready", message, type="server_error", retry_after=float(NO_REPLICA_RETRY_SECONDS)
        )
