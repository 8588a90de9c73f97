"""Answers the agents' sync: thousands of held requests on one event loop, a few threads for the database.

    1  authenticate      signature over method, path, query, time and body
    2  record the beat   with those of all others, in Redis; without Redis, in the database
    3  apply             what the node reports, where it is new
    4  answer            at once when it differs from what the node knows
    5  else hold         until the node is woken, or its time is up

Reading, routing and errors are in `app.py`, which calls `SyncServer.sync`; what an answer says is in `answers.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import ParamSpec, TypeVar
from uuid import UUID

import pydantic_core
import redis.asyncio as redis
from django.db import DatabaseError
from psycopg_pool import PoolTimeout
from redis.asyncio.connection import BlockingConnectionPool

from jobs.errors import ProtocolUnsupported
from jobs.sync.answers import Answer, Idle, answer_for, answer_idle, take_in, with_connection
from jobs.sync.batch_loader import BatchLoader
from jobs.sync.beats import Beats
from jobs.sync.changes import POLL_SECONDS as CHANGES_SECONDS
from jobs.sync.changes import NodeChanges
from jobs.sync.memory import ANSWER_SECONDS, Memory
from jobs.sync.waiting import Bell, Bells, Subscription
from marketplace.foundation import clock
from marketplace.foundation.errors import BadRequest
from marketplace.nodes.agent_auth import claimed_node, forget, forget_all, look_up, remembered, verify
from marketplace.nodes.errors import AgentUnauthenticated
from marketplace.nodes.models import Node
from marketplace.nodes.watching.liveness import record_beats_in_database
from provider_agent.protocol import (
    BEAT_SECONDS_IDLE,
    BEAT_SECONDS_LEASED,
    FEATURE_CHECKS,
    FEATURE_GATEWAYS,
    FEATURE_LINKS,
    FEATURE_UPDATES,
    HEADER_FEATURES,
    HEADER_TIME,
    PROTOCOL_VERSIONS_SPOKEN,
    SyncRequest,
    SyncResponse,
)

WAIT_SECONDS_MAX = 15.0
HELD_MAX = 20_000  # beyond it nobody is held, and everybody polls
POLL_SECONDS = 3.0  # how often a held sync looks for itself while no wakes arrive
JITTER = 0.1
REDIS_CONNECTIONS_MAX = 32
REDIS_SECONDS_MAX = 2.0

log = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Call:
    """One request as it was signed."""

    method: str
    path_and_query: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class SyncServer:
    """Everything one process has. `start` and `stop` belong to one event loop."""

    def __init__(self, *, redis_url: str, threads_max: int) -> None:
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="sync")
        self._bells = Bells()
        self._memory = Memory()
        self._subscription = Subscription(redis_url, on_wake=self._wake, on_gap=self._wake_all)
        self._changes = NodeChanges()
        self._nodes = BatchLoader[UUID, Node](lambda node_ids: self._in_thread(look_up, node_ids))
        self._idle = BatchLoader[Idle, Answer](lambda idle: self._in_thread(answer_idle, idle))
        self._tasks: list[asyncio.Task[None]] = []
        pool = BlockingConnectionPool.from_url(
            redis_url,
            max_connections=REDIS_CONNECTIONS_MAX,
            timeout=REDIS_SECONDS_MAX,
            socket_timeout=REDIS_SECONDS_MAX,
            socket_connect_timeout=REDIS_SECONDS_MAX,
        )
        self._redis = redis.Redis.from_pool(pool)
        self._beats = Beats(self._redis, in_database=self._record_in_database)

    async def start(self) -> None:
        """Begin to listen for wakes, to look for changes, and to write beats."""
        loops = (self._subscription.listen(), self._keep_looking(), self._beats.keep_flushing())
        self._tasks = [asyncio.create_task(each) for each in loops]

    async def stop(self) -> None:
        """Let everybody go."""
        self._bells.ring_all()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        await self._redis.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def state(self) -> dict[str, object]:
        """What /healthz shows."""
        return {"status": "ok", "held": self._bells.held, "is_listening": self._subscription.is_listening}

    async def sync(self, call: Call) -> SyncResponse:
        """Answer one sync; raises a SoukError for a request that cannot be answered."""
        received_at = clock.now()
        node = await self._authenticate(call, received_at)
        request = parse_request(call.body)
        self._beats.add(node.pk, received_at, request.load)
        with self._bells.hold(node.pk) as bell:
            answer = await self._take_in(node.pk, request, received_at, int(call.headers[HEADER_TIME.lower()]))
            if answer.version == request.known:
                answer = await self._hold(bell, node.pk, request, answer)
        features = call.headers.get(HEADER_FEATURES.lower(), "").split(",")
        return self._respond(answer, request, features)

    # --- below

    async def _authenticate(self, call: Call, received_at: datetime) -> Node:
        # A node that was seen lately is known without the database, and a thread would cost more than the check.
        node_id = claimed_node(call.headers)
        node = remembered(node_id, ANSWER_SECONDS) or await self._nodes.load(node_id)
        if node is None:
            raise AgentUnauthenticated
        return verify(node, call.method, call.path_and_query, call.headers, call.body, received_at=received_at)

    async def _take_in(self, node_id: UUID, request: SyncRequest, received_at: datetime, time_ms: int) -> Answer:
        # One sync of a node at a time: an older one must not reach the database after a newer one.
        async with self._memory.of(node_id).taking_in:
            if self._memory.is_news(node_id, request, time_ms):
                wakes = self._memory.of(node_id).wakes
                answer = await self._load_idle(node_id, request, time_ms)
                if answer is None:
                    answer = await self._in_thread(take_in, node_id, request, received_at, time_ms)
                self._memory.remember(node_id, request, time_ms)
                self._memory.keep(node_id, request, answer, wakes=wakes)
                return answer
        return await self._answer(node_id, request)

    async def _answer(self, node_id: UUID, request: SyncRequest) -> Answer:
        known = self._memory.answer_of(node_id, request) if self._subscription.is_listening else None
        if known is not None:
            return known
        wakes = self._memory.of(node_id).wakes
        answer = await self._load_idle(node_id, request, None)
        if answer is None:
            answer = await self._in_thread(answer_for, node_id, request)
        self._memory.keep(node_id, request, answer, wakes=wakes)
        return answer

    async def _load_idle(self, node_id: UUID, request: SyncRequest, time_ms: int | None) -> Answer | None:
        """The answer, made with those of other nodes; None for a node with news, or with something to do."""
        if request.leases or request.facts is not None:
            return None
        return await self._idle.load(Idle(node_id, request.boot_id, time_ms))

    async def _hold(self, bell: Bell, node_id: UUID, request: SyncRequest, answer: Answer) -> Answer:
        """The answer as soon as it differs from what the node knows, or the same one when its time is up."""
        seconds = min(request.wait_seconds, WAIT_SECONDS_MAX, _beat_seconds(answer, request))
        until = asyncio.get_running_loop().time() + (seconds if self._bells.held <= HELD_MAX else 0)
        while (left := until - asyncio.get_running_loop().time()) > 0 and answer.version == request.known:
            is_listening = self._subscription.is_listening
            if await bell.wait_for_ring(left if is_listening else min(left, POLL_SECONDS)) or not is_listening:
                answer = await self._answer(node_id, request)
        return answer

    def _respond(self, answer: Answer, request: SyncRequest, features: list[str]) -> SyncResponse:
        return SyncResponse(
            server_time=clock.now(),
            version=answer.version,
            # A little less each time, so that nodes which started together do not stay together.
            beat_seconds=_beat_seconds(answer, request) * random.uniform(1 - JITTER, 1),
            node_state=answer.node_state,
            desired=answer.desired,
            forget=answer.forget,
            check=answer.check if FEATURE_CHECKS in features else None,
            link=answer.link if FEATURE_LINKS in features else None,
            update=answer.update if FEATURE_UPDATES in features else None,
            gateways=answer.gateways if FEATURE_GATEWAYS in features else None,
        )

    async def _record_in_database(self, beats: Mapping[UUID, datetime]) -> None:
        await self._in_thread(record_beats_in_database, beats)

    async def _in_thread(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: with_connection(call, *args, **kwargs))

    async def _keep_looking(self) -> None:
        """Never returns: nodes that changed are loaded again, and woken."""
        while True:
            try:
                moved = await self._in_thread(self._changes.find)
                if moved is None:  # who was answered already may have been told what is no longer so
                    forget_all()
                    self._wake_all()
                else:
                    for node_id in moved:
                        forget(node_id)
                    self._wake(moved)
            except (DatabaseError, PoolTimeout) as error:
                log.warning("Changes of nodes could not be read; the next look finds them: %s", error)
            await asyncio.sleep(CHANGES_SECONDS)

    def _wake(self, node_ids: list[UUID]) -> None:
        self._memory.wake(node_ids)
        self._bells.ring(node_ids)

    def _wake_all(self) -> None:
        self._memory.wake_all()
        self._bells.ring_all()


def parse_request(body: bytes) -> SyncRequest:
    """The message; the protocol's version is looked at first, because a newer one may have fields we do not know."""
    try:
        raw = pydantic_core.from_json(body)
    except ValueError as error:
        raise BadRequest("The body is not JSON.") from error
    given = raw.get("protocol") if isinstance(raw, dict) else None
    if given not in PROTOCOL_VERSIONS_SPOKEN:
        raise ProtocolUnsupported(spoken=list(PROTOCOL_VERSIONS_SPOKEN), given=given)
    return SyncRequest.model_validate_json(body)


def _beat_seconds(answer: Answer, request: SyncRequest) -> float:
    return BEAT_SECONDS_LEASED if answer.desired or request.leases else BEAT_SECONDS_IDLE
