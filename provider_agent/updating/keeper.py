"""Where systemd is not process 1: looks every few seconds whether the updater has something to do, and starts it.

The standard library alone, so that it costs little; the updater is a process of its own, out of the proven release.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

POLL_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 60.0  # while something is wanted and could not be done
WISH: Final = "update-wanted.json"


def keep(prefix: Path, words: list[str]) -> None:
    """Never returns. `words` are handed to the updater; a newly proven release takes the keeper's place."""
    tried, tried_at = "", float("-inf")
    while True:
        seen = _seen(prefix)
        is_retry = time.monotonic() - tried_at >= RETRY_SECONDS
        if _is_due(prefix) and (seen != tried or is_retry) and not _is_busy(prefix):
            python = str(prefix / "good" / "bin" / "python")
            command = [python, "-I", "-m", "provider_agent.updating"]
            subprocess.run([*command, "once", "--prefix", str(prefix), *words], check=False)  # noqa: S603 - our own
            tried, tried_at = _seen(prefix), time.monotonic()
            if (prefix / "good").resolve() != Path(sys.prefix):
                os.execv(python, [*command, "keep", "--prefix", str(prefix), *words])  # noqa: S606 - the same, proven
        time.sleep(POLL_SECONDS)


def _is_due(prefix: Path) -> bool:
    if (prefix / "good").resolve() != (prefix / "current").resolve():
        return True
    with contextlib.suppress(OSError, ValueError):
        if json.loads((prefix / "update.json").read_text()).get("trial"):
            return True
    return any((data / WISH).exists() for data in _folders(prefix))


def _is_busy(prefix: Path) -> bool:
    """Whether another node's keeper of this prefix has started the updater."""
    with (prefix / "update.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _seen(prefix: Path) -> str:
    """Changes when there may be something new to do."""
    marks = []
    for path in (prefix / "current", prefix / "good", *(data / WISH for data in _folders(prefix))):
        with contextlib.suppress(OSError):
            found = path.lstat()
            marks.append(f"{path} {found.st_mtime_ns} {found.st_ino}")
    return "\n".join(marks)


def _folders(prefix: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [Path(line) for line in (prefix / "nodes").read_text().splitlines() if line.startswith("/")]
    return []
