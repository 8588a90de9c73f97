"""Requests that wait for something new: held on the event loop, looked after by one thread for all of them."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from django.db import Error, close_old_connections
from psycopg_pool import PoolTimeout

from jobs.running.stream_polls import StreamPoll, with_news

LOOK_SECONDS = 0.25  # between two looks at the database

log = logging.getLogger(__name__)


class HeldPolls:
    """The polls of one process. A look costs the same whether one waits or hundreds do."""

    def __init__(self) -> None:
        self._events: dict[asyncio.Event, StreamPoll] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="polls")
        self._looking: asyncio.Task[None] | None = None
        self.is_stopping = False

    @property
    def held(self) -> int:
        """How many wait now."""
        return len(self._events)

    async def wait(self, poll: StreamPoll, seconds: float) -> None:
        """Until there is something new for it, the time is up, or the process stops."""
        event = asyncio.Event()
        if self.is_stopping:
            return
        self._events[event] = poll
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return
        finally:
            del self._events[event]

    def release(self) -> None:
        """Everybody is answered now: the process stops."""
        self.is_stopping = True
        for event in self._events:
            event.set()

    async def _look(self) -> None:
        """While somebody waits."""
        loop = asyncio.get_running_loop()
        while self._events and not self.is_stopping:
            await asyncio.sleep(LOOK_SECONDS)
            waiting = dict(self._events)
            try:
                found = await loop.run_in_executor(self._thread, _find, list(waiting.values()))
            except (Error, PoolTimeout) as error:
                log.warning("Streams could not be looked at; who waits is answered when their time is up: %s", error)
                continue
            for event, poll in waiting.items():
                if poll in found:
                    event.set()


def _find(polls: list[StreamPoll]) -> set[StreamPoll]:
    try:
        return with_news(polls)
    finally:
        close_old_connections()
