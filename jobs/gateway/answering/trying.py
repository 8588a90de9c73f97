"""Tries at replicas until one begins to answer: bounded, with jitter, never after anything was sent."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from jobs.gateway.answering import continuing, streaming
from jobs.gateway.answering.opening import Opened, OpenedStream, OpenedWhole, ReplicaFailed, open_answer
from jobs.gateway.answering.work import Work
from jobs.gateway.engines.chunks import Rewriter
from jobs.gateway.routing import capabilities, hedging
from jobs.gateway.routing.endpoint_queue import Slot
from jobs.gateway.routing.replica_pool import ReplicaPool
from provider_agent.protocol.backoff import backoff_seconds

TRIES_MAX = 3  # of one request before its first token
RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX = 0.04, 0.16  # before the second try; doubled for each further one
RETRY_JITTER = (0.5, 1.5)
FIRST_SECONDS_MIN, FIRST_SECONDS_MAX = 15.0, 120.0  # for the first token of a stream
FIRST_FACTOR = 20.0  # times the endpoint's slowest usual first token
MOVE_SECONDS_MAX = 60.0  # that a stream waits for another replica

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patience:
    """How long a replica may take at each stage, in seconds; `first` None: by what was measured, within the bounds."""

    first: float | None = None
    token: float = streaming.TOKEN_SECONDS_MAX
    move: float = MOVE_SECONDS_MAX


class Trying:
    """Tries replicas for requests."""

    def __init__(self, pool: ReplicaPool, patience: Patience, clock: Callable[[], float]) -> None:
        self._pool, self.patience, self._clock = pool, patience, clock
        self._draw = random.Random()

    def _pause_seconds(self, tries: int) -> float:
        first, most = RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX
        return backoff_seconds(tries, first=first, most=most, jitter=RETRY_JITTER, draw=self._draw.uniform)

    async def open(self, work: Work) -> OpenedWhole | OpenedStream:
        """The first sign of an answer, by whichever replica. Raises ReplicaFailed, DeadlineOver and ApiError."""
        for attempt in range(TRIES_MAX):
            if attempt:
                await asyncio.sleep(self._pause_seconds(attempt))
            started = self._clock()
            slot = await self._pool.wait(work.search, is_first=attempt > 0)
            work.queue_seconds += self._clock() - started
            try:
                return await (self._race(work, slot) if work.request.is_hedged else self._try(work, slot))
            except ReplicaFailed:
                if attempt == TRIES_MAX - 1:
                    raise
        raise AssertionError("the last try returns or raises")

    async def reopen(self, work: Work) -> OpenedStream | None:
        """The same answer at another replica, from what was sent; None where nothing is left to be written.

        Raises ReplicaFailed, DeadlineOver, and ApiError where there is no replica that could.
        """
        search = replace(work.search, needs=[*work.search.needs, continuing.NEED])
        slot = await self._pool.wait(search, seconds=self.patience.move, is_first=True)
        try:
            body = continuing.continued(work.request, self._body_for(work, slot), "".join(work.sent), work.output)
        except BaseException:
            slot.release()
            raise
        if body is None:
            slot.release()
            return None
        work.is_metered = False
        opened = await self._try(work, slot, body)
        return opened if isinstance(opened, OpenedStream) else None

    def note_failed(self, work: Work, slot: Slot, failure: ReplicaFailed) -> None:
        """The replica is judged by it, and this request goes to another if there is one."""
        if not failure.is_busy:
            slot.view.note_failed(self._clock(), failure.why)
        ids = {"lease_id": str(slot.lease_id), "request_id": str(work.request.request_id)}
        log.warning("A replica failed a request: %s", failure.why, extra=ids)
        work.search = replace(work.search, avoided={*work.search.avoided, slot.lease_id})

    async def _race(self, work: Work, slot: Slot) -> OpenedWhole | OpenedStream:
        def second() -> Awaitable[OpenedWhole | OpenedStream] | None:
            other = self._pool.take(replace(work.search, avoided={*work.search.avoided, slot.lease_id}))
            if other is not None and other.lease_id == slot.lease_id:
                other.release()
                other = None
            return None if other is None else self._try(work, other)

        delay = work.queue.first_tokens_p95 if work.request.is_stream else None
        delay = hedging.DELAY_SECONDS if delay is None else delay
        opened = await hedging.race(lambda: self._try(work, slot), second, delay, Opened.close)
        work.tried = (opened.slot.lease_id, opened.slot.version)
        return opened

    async def _try(self, work: Work, slot: Slot, body: dict[str, Any] | None = None) -> OpenedWhole | OpenedStream:
        """One try at one replica; `body`: where it goes on with what another began."""
        request = work.request
        work.tried = (slot.lease_id, slot.version)
        try:
            rewriter = self._rewriter(work, is_continued=body is not None) if request.is_stream else None
            body = self._body_for(work, slot) if body is None else body
        except BaseException:
            slot.release()
            raise
        try:
            opened = await open_answer(
                request, slot, body, rewriter, seconds=self._first_seconds(work), clock=self._clock
            )
        except ReplicaFailed as failure:
            self.note_failed(work, slot, failure)
            raise
        if request.is_stream:
            slot.view.note_first_token(opened.first_at - opened.started_at)
        return opened

    def _body_for(self, work: Work, slot: Slot) -> dict[str, Any]:
        request, limits = work.request, work.request.endpoint.limits
        context = slot.engine.context
        if context is not None and work.size.tokens_max + work.tokens_max > context:
            capabilities.refuse_too_long(request, work.size, limits, context)
        estimate = work.queue.ratio.estimate(work.size)
        return capabilities.engine_body(
            request, slot.engine, limits, estimate, commits=request.endpoint.verify_share > 0
        )

    def _rewriter(self, work: Work, *, is_continued: bool) -> Rewriter:
        request = work.request
        return Rewriter(
            id=work.answer_id,
            model=request.body["model"],
            created=work.created,
            is_chat=request.kind == "chat",
            keep_text=work.is_movable or request.endpoint.verify_share > 0,
            is_continued=is_continued,
        )

    def _first_seconds(self, work: Work) -> float:
        """How long a try may take to its first sign; an answer in one piece takes as long as all of it."""
        if self.patience.first is not None:
            return self.patience.first
        if not work.request.is_stream:
            return work.request.endpoint.limits.request_seconds
        usual = work.queue.first_tokens_p95
        if usual is None:
            return FIRST_SECONDS_MAX
        return min(FIRST_SECONDS_MAX, max(FIRST_SECONDS_MIN, FIRST_FACTOR * usual))
