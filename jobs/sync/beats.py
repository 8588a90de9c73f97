"""Brings the beats of all nodes to Redis in one write every half second; without Redis, to the database.

What the nodes measured of themselves goes along; without Redis it is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from uuid import UUID

import redis.asyncio as redis

from marketplace.nodes.watching.liveness import record_beats_async
from marketplace.nodes.watching.metrics import record_loads_async
from provider_agent.protocol import Load

FLUSH_SECONDS = 0.5  # far below a beat; one write for thousands of nodes costs what one for one node does

log = logging.getLogger(__name__)


class Beats:
    """The beats of this process that are not written yet: the newest of each node."""

    def __init__(
        self, client: redis.Redis, *, in_database: Callable[[Mapping[UUID, datetime]], Awaitable[None]]
    ) -> None:
        self._redis = client
        self._in_database = in_database
        self._waiting: dict[UUID, datetime] = {}
        self._loads: list[tuple[UUID, Load]] = []

    def add(self, node_id: UUID, at: datetime, load: Load | None) -> None:
        """The node sent a beat, maybe with its health."""
        self._waiting[node_id] = at
        if load is not None:
            self._loads.append((node_id, load))

    async def keep_flushing(self) -> None:
        """Never returns and never raises, until it is cancelled; what is there then is written."""
        try:
            while True:
                await asyncio.sleep(FLUSH_SECONDS)
                with contextlib.suppress(Exception):  # logged; the next round tries again
                    await self.flush()
        except asyncio.CancelledError:
            await self.flush()
            raise

    async def flush(self) -> None:
        """Write what waits; what could not be written waits on, unless a newer beat has come."""
        beats, self._waiting = self._waiting, {}
        loads, self._loads = self._loads, []
        if not beats:
            return
        try:
            if not await record_beats_async(self._redis, beats):
                await self._in_database(beats)
        except BaseException as error:
            log.warning("Beats could not be written: %s", error)
            self._waiting = beats | self._waiting
            raise
        if loads:
            await record_loads_async(self._redis, loads)
