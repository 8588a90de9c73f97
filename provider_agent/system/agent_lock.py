"""One agent per data folder: whoever runs on it, or changes its keys, holds the lock on its lock file."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from provider_agent.errors import AgentAlreadyRuns

# Whoever looks whether an agent runs holds the lock for a moment, longer on a busy machine: that is no other agent.
LOOK_SECONDS_MAX: Final = 1.0
POLL_SECONDS: Final = 0.05


@contextmanager
def hold_agent_lock(path: Path, *, patience_seconds: float = LOOK_SECONDS_MAX) -> Iterator[None]:
    """Hold the lock until the block ends; raises AgentAlreadyRuns when another process keeps it."""
    until = time.monotonic() + patience_seconds
    with path.open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= until:
                    raise AgentAlreadyRuns from error
            time.sleep(POLL_SECONDS)
        yield


def is_agent_lock_held(path: Path) -> bool:
    """Whether an agent holds the lock now."""
    if not path.exists():
        return False
    try:
        with hold_agent_lock(path, patience_seconds=0):
            return False
    except AgentAlreadyRuns:
        return True
