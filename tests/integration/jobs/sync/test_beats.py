"""Beats that could not be written wait for the next try, and the newest of a node is the one that is written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from jobs.sync import beats as beats_module
from jobs.sync.beats import Beats

NOWHERE = "redis://127.0.0.1:9/0"
SECONDS_MAX = 20.0
NODE, AT = uuid4(), datetime(2026, 11, 22, tzinfo=UTC)


def no_redis() -> redis.Redis:
    """A client that fails at once."""
    return redis.Redis.from_url(NOWHERE, retry=Retry(NoBackoff(), 0))


class Database:
    """Takes beats, unless it is away."""

    def __init__(self) -> None:
        self.is_away = True
        self.tries = 0
        self.written: list[dict[UUID, datetime]] = []

    async def write(self, beats: Mapping[UUID, datetime]) -> None:
        self.tries += 1
        if self.is_away:
            raise ConnectionError("the database is away")
        self.written.append(dict(beats))


def test_without_redis_and_database_beats_wait_and_the_newest_is_written() -> None:
    async def scene() -> list[dict[UUID, datetime]]:
        database = Database()
        client = no_redis()
        waiting = Beats(client, in_database=database.write)
        await waiting.flush()
        waiting.add(NODE, AT, None)
        with pytest.raises(ConnectionError):
            await waiting.flush()
        waiting.add(NODE, AT + timedelta(seconds=15), None)
        database.is_away = False
        await waiting.flush()
        await waiting.flush()
        await client.aclose()
        return database.written

    assert asyncio.run(scene()) == [{NODE: AT + timedelta(seconds=15)}]


def test_a_process_that_stops_writes_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a round that failed has stopped none of the later ones."""
    monkeypatch.setattr(beats_module, "FLUSH_SECONDS", 0.01)

    async def scene() -> list[dict[UUID, datetime]]:
        database = Database()
        client = no_redis()
        waiting = Beats(client, in_database=database.write)
        waiting.add(NODE, AT, None)
        flushing = asyncio.create_task(waiting.keep_flushing())
        async with asyncio.timeout(SECONDS_MAX):
            while database.tries < 2:
                await asyncio.sleep(0.01)
        assert not flushing.done()
        database.is_away = False
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing
        await client.aclose()
        return database.written

    assert asyncio.run(scene()) == [{NODE: AT}]
