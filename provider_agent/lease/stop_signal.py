"""The request to stop a lease's program, and waits that end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StopRequestedError(Exception):
    """The lease was stopped before its program started."""


class StopSignal:
    """Set once, and never cleared."""

    def __init__(self, *, is_set: bool) -> None:
        self._requested = asyncio.Event()
        if is_set:
            self._requested.set()

    @property
    def is_set(self) -> bool:
        """Whether the program is to stop."""
        return self._requested.is_set()

    def set(self) -> None:
        """End every wait of this signal; repeating it changes nothing."""
        self._requested.set()

    async def pause(self, seconds: float) -> None:
        """Pause until the seconds have passed or a stop is requested."""
        try:
            await asyncio.wait_for(self._requested.wait(), seconds)
        except TimeoutError:
            return

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, or StopRequestedError as soon as the lease is stopped."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._requested.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise StopRequestedError
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
