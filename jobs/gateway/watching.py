"""What may interrupt a request's work: its caller hangs up, or what it waits for does not come in time."""

from __future__ import annotations

import asyncio
from typing import Literal

from jobs.gateway.asked import Client

WATCH_AFTER_SECONDS = 0.02  # most answers are there before: a task to watch the caller would cost as much as they do


class Watch:
    """Cancels the task that made it, and says why; one timer for all its waits, so that a token costs no timer."""

    __slots__ = ("_client", "_gone", "_handle", "_later", "_loop", "_task", "_until", "why")

    def __init__(self, client: Client) -> None:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is watched from within a task")
        self._task = task
        self.why: Literal["", "gone", "late"] = ""
        self._until: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._client = client
        self._gone: asyncio.Task[None] | None = None
        self._later = self._loop.call_later(WATCH_AFTER_SECONDS, self._watch_caller)

    def arm(self, until: float) -> None:
        """What is waited for must come by then (the loop's time)."""
        self._until = until
        if self._handle is None:
            self._handle = self._loop.call_at(until, self._on_time)
        elif until < self._handle.when():
            self._handle.cancel()
            self._handle = self._loop.call_at(until, self._on_time)

    def disarm(self) -> None:
        """It came."""
        self._until = None

    def take_back(self) -> bool:
        """Whether a cancellation was this watch's for lateness; it is taken back, and the work may go on."""
        if self.why != "late":
            return False
        self.why = ""
        self._task.uncancel()
        return True

    def take_back_gone(self) -> bool:
        """Whether a cancellation was this watch's because nobody waits any more; it is taken back."""
        if self.why != "gone":
            return False
        self._task.uncancel()
        return True

    def close(self) -> None:
        """From here on nothing is interrupted."""
        self._later.cancel()
        if self._gone is not None:
            self._gone.remove_done_callback(self._on_gone)
            self._gone.cancel()
        if self._handle is not None:
            self._handle.cancel()

    def _watch_caller(self) -> None:
        self._gone = self._loop.create_task(self._client.until_gone())
        self._gone.add_done_callback(self._on_gone)

    def _on_gone(self, gone: asyncio.Task[None]) -> None:
        if not gone.cancelled() and not self.why:
            self.why = "gone"
            self._task.cancel()

    def _on_time(self) -> None:
        self._handle = None
        if self._until is None:
            return
        if self._loop.time() >= self._until:
            self._until = None
            if not self.why:
                self.why = "late"
                self._task.cancel()
        else:
            self._handle = self._loop.call_at(self._until, self._on_time)
