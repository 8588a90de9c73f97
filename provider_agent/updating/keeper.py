"""Where systemd is not process 1: looks every few seconds whether the updater has something to do, or an agent crashed.

The standard library alone, so that it costs little; what acts is a process of its own, out of the proven release.
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

from provider_agent.updating.reviving import TRIES_MAX, Reviver

POLL_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 60.0  # while something is wanted and could not be done
UPDATE_REQUEST: Final = "update-wanted.json"


def keep(prefix: Path, words: list[str]) -> None:
    """Never returns. `words` are handed to the updater; a newly proven release takes the keeper's place."""
    tried, tried_at = "", float("-inf")
    reviver = Reviver()
    while True:
        seen = _seen(prefix)
        is_retry = time.monotonic() - tried_at >= RETRY_SECONDS
        try:
            if _is_due(prefix) and (seen != tried or is_retry) and not _is_busy(prefix):
                _run(prefix, "once", *words)
                tried, tried_at = _seen(prefix), time.monotonic()
                if (prefix / "good").resolve() != Path(sys.prefix):
                    command = _command(prefix, "keep", *words)
                    os.execv(command[0], command)  # noqa: S606 - the same, proven
            if not _has_trial(prefix) and not _is_busy(prefix):  # else the updater looks after the agents
                _revive(prefix, reviver)
        except OSError as error:  # a full disk, an interpreter that is gone for a moment: nobody else would go on
            _say(f"The keeper goes on after {error}")
        time.sleep(POLL_SECONDS)


def _revive(prefix: Path, reviver: Reviver) -> None:
    for data in reviver.due(_folders(prefix), time.monotonic()):
        _say(f"The agent of {data} crashed and is started again.")
        _run(prefix, "revive", "--data", str(data))
        if reviver.has_given_up(data):
            _say(f"It is left alone after {TRIES_MAX} times in a row: souk-agent service start --data {data}")


def _run(prefix: Path, verb: str, *words: str) -> None:
    subprocess.run(_command(prefix, verb, *words), check=False)  # noqa: S603 - our own


def _command(prefix: Path, verb: str, *words: str) -> list[str]:
    python = str(prefix / "good" / "bin" / "python")
    return [python, "-I", "-m", "provider_agent.updating", verb, "--prefix", str(prefix), *words]


def _say(sentence: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}\n")
    sys.stderr.flush()


def _is_due(prefix: Path) -> bool:
    return _has_trial(prefix) or any((data / UPDATE_REQUEST).exists() for data in _folders(prefix))


def _has_trial(prefix: Path) -> bool:
    if (prefix / "good").resolve() != (prefix / "current").resolve():
        return True
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return bool(json.loads((prefix / "update.json").read_text()).get("trial"))
    return False


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
    for path in (prefix / "current", prefix / "good", *(data / UPDATE_REQUEST for data in _folders(prefix))):
        with contextlib.suppress(OSError):
            found = path.lstat()
            marks.append(f"{path} {found.st_mtime_ns} {found.st_ino}")
    return "\n".join(marks)


def _folders(prefix: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [Path(line) for line in (prefix / "nodes").read_text().splitlines() if line.startswith("/")]
    return []
