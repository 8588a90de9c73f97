"""One agent per data folder: whoever runs on it, or changes its keys, holds the lock on its lock file."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from provider_agent.errors import AgentAlreadyRuns


@contextmanager
def hold_agent_lock(path: Path) -> Iterator[None]:
    """Hold the lock until the block ends; raises AgentAlreadyRuns when another process holds it."""
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AgentAlreadyRuns from error
        yield


def is_agent_lock_held(path: Path) -> bool:
    """Whether an agent holds the lock now."""
    if not path.exists():
        return False
    try:
        with hold_agent_lock(path):
            return False
    except AgentAlreadyRuns:
        return True
