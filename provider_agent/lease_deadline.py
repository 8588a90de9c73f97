"""Until when a lease lasts, by a clock that nobody sets."""

from __future__ import annotations

import time
from datetime import datetime

ADOPTED_SECONDS_MIN, ADOPTED_SECONDS_MAX = 30.0, 120.0  # a new agent's time to hear of a lease that goes on


class LeaseDeadline:
    """The end of one lease, on the monotonic clock."""

    def __init__(self) -> None:
        self.at = 0.0
        self._is_news = False

    @property
    def seconds_left(self) -> float:
        """Below zero once it has passed."""
        return self.at - time.monotonic()

    def heard(self, until: datetime, *, server_time: datetime) -> None:
        """The server said at `server_time` that the lease lasts until then."""
        self._begin((until - server_time).total_seconds())

    def remembered(self, until: datetime, *, now: datetime) -> None:
        """Of an adopted lease nobody said anything yet: our own clock may be wrong, so it is believed within bounds."""
        self._begin(min(max((until - now).total_seconds(), ADOPTED_SECONDS_MIN), ADOPTED_SECONDS_MAX))

    def take_news(self) -> bool:
        """Whether it was moved since this was asked last."""
        is_news, self._is_news = self._is_news, False
        return is_news

    def _begin(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds
        self._is_news = True
