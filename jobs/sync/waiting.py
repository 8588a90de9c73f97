"""Held syncs and what wakes them: one subscription a process, node -> futures.

A future is registered before the answer is computed, so that a change in between is not missed. While the subscription
is down nobody is woken, and those who hold a sync look for themselves now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

import redis.asyncio as redis
from redis.exceptions import RedisError

from marketplace.nodes.wake import CHANNEL, parse_message

RECONNECT_SECONDS = 1.0
READ_SECONDS = 5.0
SILENT_READS_MAX = 3  # each is followed by a ping, so a connection without a byte for so long is dead

log = logging.getLogger(__name__)


class Bell:
    """Rung once for one held sync, or silenced again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Something may have changed for this node."""
        self._event.set()

    async def wait_for_ring(self, seconds: float) -> bool:
        """Whether it rang within so many seconds; then it may be waited for again."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class Bells:
    """All held syncs of this process, by node."""

    def __init__(self) -> None:
        self._bells: defaultdict[UUID, set[Bell]] = defaultdict(set)
        self.held = 0

    @contextlib.contextmanager
    def hold(self, node_id: UUID) -> Iterator[Bell]:
        """A bell that rings whenever this node is woken."""
        bell = Bell()
        self._bells[node_id].add(bell)
        self.held += 1
        try:
            yield bell
        finally:
            self.held -= 1
            self._bells[node_id].discard(bell)
            if not self._bells[node_id]:
                del self._bells[node_id]

    def ring(self, node_ids: Iterable[UUID]) -> None:
        """Wake the held syncs of these nodes."""
        for node_id in node_ids:
            for bell in self._bells.get(node_id, ()):
                bell.ring()

    def ring_all(self) -> None:
        """Wake everybody: nobody knows what was missed."""
        self.ring(list(self._bells))


class Subscription:
    """Keeps listening for wakes, whatever happens to Redis."""

    def __init__(self, url: str, *, on_wake: Callable[[list[UUID]], None], on_gap: Callable[[], None]) -> None:
        self._url = url
        self._on_wake = on_wake
        self._on_gap = on_gap  # wakes may have been missed: after every break, and at its begin
        self.is_listening = False

    async def listen(self) -> None:
        """Never returns and never raises, until it is cancelled."""
        while True:
            try:
                await self._listen_once()
            except (RedisError, OSError) as error:
                log.warning("The subscription to wakes broke; syncs look for themselves until it is back: %s", error)
            finally:
                self.is_listening = False
                self._on_gap()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen_once(self) -> None:
        # The library's own timeout would break a read that waits for a wake.
        client = redis.Redis.from_url(self._url, socket_connect_timeout=READ_SECONDS, socket_timeout=None)
        async with client, client.pubsub() as pubsub:
            await pubsub.subscribe(CHANNEL)
            silent_reads = 0
            while silent_reads < SILENT_READS_MAX:
                message = await pubsub.get_message(timeout=READ_SECONDS)
                if message is None:
                    silent_reads += 1
                    await pubsub.ping()
                    continue
                silent_reads = 0
                if message["type"] == "subscribe":
                    self.is_listening = True
                    self._on_gap()
                elif message["type"] == "message":
                    self._on_wake(parse_message(message["data"]))
