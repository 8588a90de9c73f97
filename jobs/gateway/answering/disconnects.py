"""Interrupts a request's work when its caller disconnects, or when what it waits for does not come in time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal

from jobs.gateway.inference_request import Client

MONITOR_AFTER_SECONDS = 0.02  # most answers are complete before: monitoring those callers would cost as much again


class DisconnectMonitor:
    """Monitors callers once their request has lasted MONITOR_AFTER_SECONDS (twice that at most): one timer for all."""

    def __init__(self) -> None:
        self._young: deque[tuple[float, RequestWatchdog]] = deque()
        self._is_set = False

    def add(self, watchdog: RequestWatchdog, loop: asyncio.AbstractEventLoop) -> None:
        """Monitor its caller soon, unless it is closed before."""
        self._young.append((loop.time() + MONITOR_AFTER_SECONDS, watchdog))
        if not self._is_set:
            self._is_set = True
            loop.call_later(MONITOR_AFTER_SECONDS, self._start_monitoring, loop)

    def _start_monitoring(self, loop: asyncio.AbstractEventLoop) -> None:
        young, now = self._young, loop.time()
        while young and young[0][0] <= now:
            young.popleft()[1].monitor_caller()
        self._is_set = bool(young)
        if young:
            loop.call_later(MONITOR_AFTER_SECONDS, self._start_monitoring, loop)


class RequestWatchdog:
    """Cancels the task that made it and keeps the reason; one timer for all waits, so that a token costs none."""

    __slots__ = ("_client", "_gone", "_handle", "_is_closed", "_loop", "_task", "_until", "why")

    def __init__(self, client: Client, monitor: DisconnectMonitor) -> None:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is monitored from within a task")
        self._task = task
        self.why: Literal["", "gone", "late"] = ""
        self._until: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._client = client
        self._gone: asyncio.Task[None] | None = None
        self._is_closed = False
        monitor.add(self, self._loop)

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

    def absorb_timeout(self) -> bool:
        """Whether this watchdog cancelled the task for a timeout; it is undone, and the work may continue."""
        if self.why != "late":
            return False
        self.why = ""
        self._task.uncancel()
        return True

    def absorb_disconnect(self) -> bool:
        """Whether this watchdog cancelled the task for a disconnect; it is undone."""
        if self.why != "gone":
            return False
        self._task.uncancel()
        return True

    def close(self) -> None:
        """From here on nothing is interrupted."""
        self._is_closed = True
        if self._gone is not None:
            self._gone.remove_done_callback(self._on_gone)
            self._gone.cancel()
        if self._handle is not None:
            self._handle.cancel()

    def monitor_caller(self) -> None:
        """Watch for the caller's disconnect from now on; for the monitor."""
        if self._is_closed:
            return
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
