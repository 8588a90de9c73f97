"""The wish that a lease's program stop, and waiting that ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StopAskedError(Exception):
    """The lease was stopped before its program started."""


class StopSignal:
    """Given once and never taken back."""

    def __init__(self, *, is_asked: bool) -> None:
        self._asked = asyncio.Event()
        if is_asked:
            self._asked.set()

    @property
    def is_asked(self) -> bool:
        """Whether somebody wants the program to stop."""
        return self._asked.is_set()

    def ask(self) -> None:
        """End every wait of this signal; asking twice changes nothing."""
        self._asked.set()

    async def pause(self, seconds: float) -> None:
        """Pause, but not past the moment when a stop is asked."""
        try:
            await asyncio.wait_for(self._asked.wait(), seconds)
        except TimeoutError:
            return

    async def unless_asked(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, or StopAskedError as soon as the lease is stopped."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise StopAskedError
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
