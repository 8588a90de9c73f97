"""Questions that come at once are asked at once: thousands of nodes that return together cost tens of queries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

BATCH_MAX = 250  # some 20 ms of one core: what came meanwhile waits no longer than that

Q = TypeVar("Q")
A = TypeVar("A")


class Together(Generic[Q, A]):
    """A question goes out at once when none is out; what comes meanwhile goes out together when that is answered."""

    def __init__(self, ask_all: Callable[[Sequence[Q]], Awaitable[Mapping[Q, A]]]) -> None:
        self._ask_all = ask_all
        self._waiting: list[tuple[Q, asyncio.Future[A | None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def ask(self, question: Q) -> A | None:
        """The answer, None where there is none; an error of the batch is everybody's in it."""
        future: asyncio.Future[A | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work_off())
        return await future

    async def _work_off(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                await self._answer(batch)
        finally:
            self._task = None

    async def _answer(self, batch: list[tuple[Q, asyncio.Future[A | None]]]) -> None:
        try:
            answers = await self._ask_all([question for question, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():  # who asked may have left
                    future.set_exception(error) if isinstance(error, Exception) else future.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for question, future in batch:
            if not future.done():
                future.set_result(answers.get(question))
