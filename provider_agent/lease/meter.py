"""Billable milliseconds: the monotonic clock, and only while RUNNING.

Time during which no agent watched (it was down) is not billed: the server saw nothing of it either.
"""

from __future__ import annotations

import time


class Meter:
    """A stopwatch that goes on from a stored value and never goes back."""

    def __init__(self, billable_ms: int = 0) -> None:
        self._counted_ns = billable_ms * 1_000_000
        self._started_ns: int | None = None

    def start(self) -> None:
        """Count from now on; starting twice changes nothing."""
        if self._started_ns is None:
            self._started_ns = time.monotonic_ns()

    def stop(self) -> None:
        """Count no more; stopping twice changes nothing."""
        if self._started_ns is not None:
            self._counted_ns += time.monotonic_ns() - self._started_ns
            self._started_ns = None

    def read_ms(self) -> int:
        """Billable milliseconds so far, rounded down in the customer's favour."""
        running_ns = time.monotonic_ns() - self._started_ns if self._started_ns is not None else 0
        return (self._counted_ns + running_ns) // 1_000_000
