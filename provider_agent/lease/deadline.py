"""Until when a lease lasts, by a clock that cannot be set."""

from __future__ import annotations

import time
from datetime import datetime

ADOPTED_SECONDS_MIN, ADOPTED_SECONDS_MAX = 30.0, 120.0  # a new agent has this long until the server extends the lease


class LeaseDeadline:
    """The end of one lease, on the monotonic clock."""

    def __init__(self) -> None:
        self.at = 0.0
        self._is_changed = False

    @property
    def seconds_left(self) -> float:
        """Below zero once it has passed."""
        return self.at - time.monotonic()

    def set_by_server(self, until: datetime, *, server_time: datetime) -> None:
        """The lease lasts until `until`, by a server whose clock shows `server_time`."""
        self._begin((until - server_time).total_seconds())

    def set_from_journal(self, until: datetime, *, now: datetime) -> None:
        """The journal's end of an adopted lease, within bounds, because our own clock may be wrong."""
        self._begin(min(max((until - now).total_seconds(), ADOPTED_SECONDS_MIN), ADOPTED_SECONDS_MAX))

    def take_change(self) -> bool:
        """Whether the deadline was moved since the last call."""
        is_changed, self._is_changed = self._is_changed, False
        return is_changed

    def _begin(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds
        self._is_changed = True
