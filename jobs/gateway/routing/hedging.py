"""A second try beside a slow first one: the first that begins to answer is taken, the other is cancelled.

The header `x-souk-hedge: true` requests it (the body stays OpenAI's). The second starts when the first has taken
longer than nineteen of twenty first tokens took, and only where a replica is free at once: hedging never queues, and
an endpoint at its limit is not made slower by it. Only what the winner did is billed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

DELAY_SECONDS = 1.0  # where nothing was measured
DELAY_SECONDS_MIN = 0.02

T = TypeVar("T")
_ending: set[asyncio.Task[None]] = set()  # tries that were abandoned, until they have ended: the loop keeps no task


async def race(
    first: Callable[[], Awaitable[T]],
    second: Callable[[], Awaitable[T] | None],
    delay: float,
    drop: Callable[[T], Coroutine[Any, Any, None]],
) -> T:
    """The faster one's result; an error only when both fail, and then the first one's.

    `drop` closes what is not returned, also where this is cancelled in the moment in which a result comes; `second`
    returns None where no replica is free. Between the winner's result and the return nothing is awaited, so that no
    cancellation can lose it.
    """
    tasks: list[asyncio.Future[T]] = [asyncio.ensure_future(first())]
    winner: asyncio.Future[T] | None = None
    try:
        await asyncio.wait(tasks, timeout=max(delay, DELAY_SECONDS_MIN))
        if not tasks[0].done():
            other = second()
            if other is not None:
                tasks.append(asyncio.ensure_future(other))
        winner = await _fastest(tasks)
        return winner.result()
    finally:
        for task in tasks:
            if task is not winner:
                _abandon(task, drop)


async def _fastest(tasks: Sequence[asyncio.Future[T]]) -> asyncio.Future[T]:
    waiting = set(tasks)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in done and _is_good(task):
                return task
    return tasks[0]


def _is_good(task: asyncio.Future[T]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _abandon(task: asyncio.Future[T], drop: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    async def end() -> None:
        task.cancel()  # from here, a step later: a task that was cancelled before its first step would run nothing
        with contextlib.suppress(Exception, asyncio.CancelledError):  # its own error or end: nobody asks for it
            await drop(await task)

    ending = asyncio.get_running_loop().create_task(end())
    _ending.add(ending)
    ending.add_done_callback(_ending.discard)
