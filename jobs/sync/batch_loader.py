"""Loads what many requests need at once in few queries: thousands of nodes that return together cost tens of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

BATCH_MAX = 250  # some 20 ms of one core: what came meanwhile waits no longer than that

K = TypeVar("K")
V = TypeVar("V")


class BatchLoader(Generic[K, V]):
    """Loads a key at once while nothing is being loaded; keys that come meanwhile are loaded next, as one batch."""

    def __init__(self, load_all: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._load_all = load_all
        self._waiting: list[tuple[K, asyncio.Future[V | None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def load(self, key: K) -> V | None:
        """The value, None where there is none; an error of a batch is raised for every key in it."""
        future: asyncio.Future[V | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work_off())
        return await future

    async def _work_off(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                await self._load(batch)
        finally:
            self._task = None

    async def _load(self, batch: list[tuple[K, asyncio.Future[V | None]]]) -> None:
        try:
            values = await self._load_all([key for key, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():  # its request may have been given up
                    future.set_exception(error) if isinstance(error, Exception) else future.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for key, future in batch:
            if not future.done():
                future.set_result(values.get(key))
