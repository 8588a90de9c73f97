"""A second try beside a slow first one: the first that begins to answer is taken, the other is cancelled.

The header `x-souk-hedge: true` requests it (the body stays OpenAI's). The second starts when the first has taken
longer than nineteen of twenty first tokens took, and only where a replica is free at once: hedging never queues, and
an endpoint at its limit is not made slower by it. Only what the winner did is billed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

DELAY_SECONDS = 1.0  # where nothing was measured
DELAY_SECONDS_MIN = 0.02

T = TypeVar("T")


async def race(
    first: Callable[[], Awaitable[T]],
    second: Callable[[], Awaitable[T] | None],
    delay: float,
    drop: Callable[[T], Awaitable[None]],
) -> T:
    """The faster one's result; an error only when both fail, and then the first one's.

    `drop` closes what came too late; `second` returns None where no replica is free.
    """
    tasks: list[asyncio.Future[T]] = [asyncio.ensure_future(first())]
    try:
        await asyncio.wait(tasks, timeout=max(delay, DELAY_SECONDS_MIN))
        if not tasks[0].done():
            other = second()
            if other is not None:
                tasks.append(asyncio.ensure_future(other))
        return await _fastest(tasks)
    finally:
        winner = next((task for task in tasks if _is_good(task)), None)
        for task in tasks:
            if task is not winner:
                task.cancel()
        for task, result in zip(tasks, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
            if task is not winner and not isinstance(result, BaseException):
                await drop(result)


async def _fastest(tasks: Sequence[asyncio.Future[T]]) -> T:
    waiting = set(tasks)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in done and _is_good(task):
                return task.result()
    return tasks[0].result()


def _is_good(task: asyncio.Future[T]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
