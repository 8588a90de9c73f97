"""How often the agent must contact the server, and when it last did.

The sync request is the heartbeat: the server records the beat as the request arrives. So the agent holds each long
poll for one beat at most, and after a failure tries again well within a beat.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime

from provider_agent.protocol import BEAT_SECONDS_IDLE
from provider_agent.protocol.backoff import FULL_JITTER, backoff_seconds

WAIT_SECONDS_MAX = 15.0
RETRY_SECONDS_FIRST = 0.5
RETRY_BEATS_MAX = 1.0  # never pause longer than this many beats, so that contact returns as soon as the server does
BEAT_SECONDS_MIN = 0.2
BEAT_SECONDS_MAX = 60.0
JITTER = 0.1


class Heartbeat:
    """The interval that the server set, and the last contact by the monotonic clock."""

    def __init__(self) -> None:
        self.seconds: float = BEAT_SECONDS_IDLE
        self.failures = 0
        self.asked_at = 0.0  # when the newest request that was answered was made, by the monotonic clock
        self._contact_at = time.monotonic()
        self.contact_at: datetime | None = None  # for people; intervals are measured by the other clock

    def record_contact(self, beat_seconds: float, asked_at: float) -> None:
        """The server answered what was asked then, and set the next interval."""
        self.seconds = min(max(beat_seconds, BEAT_SECONDS_MIN), BEAT_SECONDS_MAX)
        self.failures = 0
        self.asked_at = asked_at
        self._contact_at = time.monotonic()
        self.contact_at = datetime.now(UTC)

    def record_failure(self) -> float:
        """The server did not answer; returns the seconds to pause (full jitter, doubled each time, bounded)."""
        self.failures += 1
        most = self.seconds * RETRY_BEATS_MAX
        return backoff_seconds(self.failures, first=RETRY_SECONDS_FIRST, most=most, jitter=FULL_JITTER)

    def silent_seconds(self) -> float:
        """How long the server has not answered."""
        return time.monotonic() - self._contact_at

    def wait_seconds(self) -> float:
        """How long the server may hold the next poll: just under one beat, so that nodes do not beat in step."""
        return min(self.seconds, WAIT_SECONDS_MAX) * random.uniform(1 - JITTER, 1)
