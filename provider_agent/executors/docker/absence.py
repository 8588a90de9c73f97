"""Whether a container ended because its engine did: then the node broke the attempt, whatever the exit code says.

An engine that stops ends its containers by signals; one that was killed finds them ended and makes up a code. Neither
may count as the customer's own failure, nor a polite program's status 0 as its success. Three signs:

    the engine was made to signal the container, by its own end or by somebody at the node; we did not ask for it
    the engine did not answer us, and the container ended in that time (with live-restore it may have ended by itself)
    the container ended before this engine's start: no engine ran that could see how

An engine makes its default network anew at each start, unless it found containers that still run: that is how its start
is known.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import docker

MARGIN: Final = timedelta(seconds=5)
LOOK_BACK: Final = timedelta(seconds=120)
BACK_MARGIN: Final = timedelta(seconds=15)  # an engine that comes back ends containers that it does not keep
DEFAULT_NETWORK: Final = "bridge"


class Absence:
    """The newest time in which the engine did not answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: datetime | None = None
        self._until: datetime | None = None

    def missed(self) -> None:
        """The engine did not answer just now."""
        with self._lock:
            if self._since is None or self._until is not None:
                self._since, self._until = datetime.now(UTC), None

    def answered(self) -> None:
        """It did."""
        with self._lock:
            if self._since is not None and self._until is None:
                self._until = datetime.now(UTC)

    def ended(self, engine: docker.DockerClient, container_id: str, state: Mapping[str, Any]) -> bool:
        """Whether the container of this `State` ended with its engine and not by itself.

        Raises DockerException or RequestException where the engine goes away over the question.
        """
        finished, succeeded = parse_time(str(state.get("FinishedAt", ""))), int(state["ExitCode"]) == 0
        if finished is None:
            return False
        if was_signalled(engine, container_id, finished):
            return True
        with self._lock:
            since, until = self._since, self._until
        began = parse_time(str(state.get("StartedAt", "")))
        was_there = since is not None and began is not None and began <= since
        if since is not None and was_there and since - MARGIN <= finished <= (until or datetime.now(UTC)) + BACK_MARGIN:
            return not (succeeded and engine.info().get("LiveRestoreEnabled"))
        started = parse_time(str(engine.networks.get(DEFAULT_NETWORK).attrs.get("Created", "")))
        return not succeeded and started is not None and finished <= started


def was_signalled(engine: docker.DockerClient, container_id: str, finished: datetime) -> bool:
    """Whether the engine remembers that it sent a signal there; what a program does to itself it never sees."""
    since, until = finished - LOOK_BACK, datetime.now(UTC)
    filters = {"container": container_id, "event": "kill"}
    return any(True for _ in engine.events(since=since.timestamp(), until=until.timestamp(), filters=filters))


def parse_time(text: str) -> datetime | None:
    """The engine's times have nanoseconds, and the year 1 where there is none."""
    found = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?\d*(Z|[+-]\d\d:\d\d)$", text)
    if not found or found[1].startswith("0001"):
        return None
    return datetime.fromisoformat(found[1] + (found[2] or "") + found[3].replace("Z", "+00:00"))
