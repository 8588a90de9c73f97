"""One agent per data folder: whoever runs on it, or changes its keys, holds the lock on its lock file."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# Whoever looks whether an agent runs holds the lock for a moment, longer on a busy machine: that is no other agent.
LOOK_SECONDS_MAX: Final = 1.0
POLL_SECONDS: Final = 0.05


@contextmanager
def hold_agent_lock(path: Path) -> Iterator[None]:
    """Hold the lock until the block ends; raises AgentAlreadyRuns when another process keeps it."""
    until = time.monotonic() + LOOK_SECONDS_MAX
    with path.open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= until:
                    from provider_agent.errors import AgentAlreadyRuns  # loads httpx: the keeper only looks, and often

                    raise AgentAlreadyRuns from error
            time.sleep(POLL_SECONDS)
        yield


def is_agent_lock_held(path: Path) -> bool:
    """Whether an agent holds the lock now.

    Root looks in folders of others: it follows no link there, and waits for no pipe.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP}:
            return False
        raise
    with os.fdopen(descriptor, "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
