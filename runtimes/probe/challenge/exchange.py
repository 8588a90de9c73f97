"""Messages between the agent and the processes of a challenge: JSON files in the work folder, each written whole.

    ready-I     the process of device I has loaded torch and warmed its device
    task        what each device has to do; appears once all are ready, so that all begin together
    commit-I    the roots of the states of device I's chain
    open        which blocks are demanded
    reveal-I-J  the J-th block that device I reveals
    filled-I    device I's memory is filled
    recall-K    the key to read it back with, for the K-th time; an empty one ends the challenge
    recalled-I-K  what was read

Files work in the same way for a process and for a container whose work folder is mounted.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.005
WAIT_SECONDS_MAX = 900.0


def send(folder: Path, name: str, message: Any) -> None:
    """Write one message; a reader sees all of it or nothing."""
    partial = folder / f".{name}.partial"
    partial.write_text(json.dumps(message, separators=(",", ":")))
    partial.replace(folder / f"{name}.json")


def receive(folder: Path, name: str, *, seconds: float = WAIT_SECONDS_MAX) -> Any:
    """Wait for one message; raises TimeoutError, and ends with the parent process."""
    path, parent = folder / f"{name}.json", os.getppid()
    until = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{name} did not come within {seconds:g} s")
        if os.getppid() != parent:
            raise TimeoutError("the challenge went away")
        time.sleep(POLL_SECONDS)
    return json.loads(path.read_text())
