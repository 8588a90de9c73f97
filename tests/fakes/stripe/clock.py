"""Time as the fake sees it: it stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

START: Final = int(datetime(2026, 1, 5, 12, tzinfo=UTC).timestamp())


class FakeClock:
    """Seconds since 1970; each move calls its observers, so that what falls due happens then."""

    def __init__(self, start: int = START) -> None:
        self._now = start
        self._watchers: list[Callable[[], None]] = []

    def now(self) -> int:
        return self._now

    def advance(self, seconds: float) -> int:
        """Move on (never back) and let happen what falls due; returns the new time."""
        if seconds < 0:
            raise ValueError("time does not go back")
        return self.move_to(self._now + int(seconds))

    def move_to(self, seconds: int) -> int:
        self._now = max(self._now, int(seconds))
        for watcher in self._watchers:
            watcher()
        return self._now

    def watch(self, watcher: Callable[[], None]) -> None:
        self._watchers.append(watcher)
