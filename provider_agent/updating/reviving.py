"""Where systemd is not process 1: an agent that crashed is brought back, one that was stopped on purpose is not.

The standard library alone, because the keeper looks every few seconds. What counts as a crash is what systemd counts
(Restart=always, RestartPreventExitStatus of packaging/unit.py), but for an agent that ended well: without systemd a
signal is how a person stops it.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from provider_agent.system.agent_lock import is_agent_lock_held

PID_FILE: Final = "agent.pid"  # written by the service; a stop of the service removes it
LOCK_FILE: Final = "agent.lock"
ENDED_FILE: Final = "agent.ended"
ENDED_BYTES_MAX: Final = 16
# Asked to end; wrong configuration; not enrolled; refused by the marketplace; another one runs; interrupted.
LEFT_ALONE: Final = frozenset({"0", "2", "3", "4", "6", "130"})
# Doubled each time here and not by protocol.backoff, whose package needs more than the standard library.
WAIT_SECONDS_FIRST: Final = 5.0
WAIT_SECONDS_MAX: Final = 300.0
TRIES_MAX: Final = 10  # in a row; about half an hour
STEADY_SECONDS: Final = 600.0  # an agent that was up for so long has not crashed "in a row"


@dataclass
class Watch:
    """What the keeper remembers of one agent."""

    tries: int = 0
    due_at: float | None = None  # None: it is not down
    up_since: float = field(default_factory=time.monotonic)


class Reviver:
    """Decides when which agent is started again."""

    def __init__(self) -> None:
        self._watched: dict[Path, Watch] = {}

    def due(self, folders: list[Path], now: float) -> list[Path]:
        """Data folders whose agents are to be started now; each is waited for longer than the time before."""
        return [folder for folder in folders if self._is_due(folder, self._watched.setdefault(folder, Watch()), now)]

    def _is_due(self, folder: Path, watch: Watch, now: float) -> bool:
        if not has_crashed(folder):
            if watch.due_at is not None:
                watch.due_at, watch.up_since = None, now
            if now - watch.up_since >= STEADY_SECONDS:
                watch.tries = 0
            return False
        if watch.tries >= TRIES_MAX:
            return False
        if watch.due_at is None:
            watch.due_at = now + min(WAIT_SECONDS_FIRST * 2**watch.tries, WAIT_SECONDS_MAX)
        if now < watch.due_at:
            return False
        watch.tries += 1
        watch.due_at = now + min(WAIT_SECONDS_FIRST * 2**watch.tries, WAIT_SECONDS_MAX)
        return True

    def has_given_up(self, folder: Path) -> bool:
        """Whether this was the last try."""
        return self._watched[folder].tries >= TRIES_MAX


def has_crashed(data: Path) -> bool:
    """Whether a service keeps this node's agent, and it ended without anybody wanting it."""
    try:
        pid = int((data / PID_FILE).read_text())
    except (OSError, ValueError):
        return False
    return not _is_agent(pid, data) and not is_agent_lock_held(data / LOCK_FILE) and ended_with(data) not in LEFT_ALONE


def ended_with(data: Path) -> str:
    """The exit status that the newest agent left; empty where it left none."""
    with contextlib.suppress(OSError):
        descriptor = os.open(data / ENDED_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if os.fstat(descriptor).st_mtime >= (data / PID_FILE).stat().st_mtime:  # not of the one before
                return file.read(ENDED_BYTES_MAX).decode(errors="replace").strip()
    return ""


def _is_agent(pid: int, data: Path) -> bool:
    """Whether the process is this agent, perhaps on its way up, and not another process that got its number later."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b"start" in words and os.fsencode(data) in words
    return False
