"""Whether a program filled the node's disk by itself, where its lease has no disk of its own.

    1. record_share   before the program starts: its part of what is free, and how much its files take already
    2. has_filled     after it ended on a full disk: whether they take up that part

A program that fills its lease's own disk has failed by itself. Without one it would have failed by the node's fault:
any program could make its work free in its last second, with one file as large as the disk.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

from provider_agent.executors.scratch import has_disk
from provider_agent.system.atomic import write_atomically
from provider_agent.system.programs import SYSTEM_PATH

NAME: Final = "disk_share.json"  # in the lease's folder, where the program does not reach
FILLED_SHARE: Final = 0.9  # of its part; the agent writes, too
COUNT_SECONDS_MAX: Final = 60.0


def record_share(folder: Path, share: float) -> None:
    """Note what the program of a lease may take; `share`: the part of the node's devices that the lease has."""
    used = count_bytes(folder)
    if has_disk(folder) or used is None:
        return
    free = int(shutil.disk_usage(folder).free * share)
    write_atomically(folder / NAME, json.dumps({"free_bytes": free, "used_bytes": used}).encode())


def has_filled(folder: Path) -> bool:
    """Whether the program has taken up its part. False where that is not known, such as for a lease of before."""
    try:
        noted = json.loads((folder / NAME).read_text())
    except (OSError, ValueError):
        return False
    used = count_bytes(folder)
    if used is None:
        return True  # it was counted before the program ran: what cannot be counted now, the program hid
    return bool(used - noted["used_bytes"] >= noted["free_bytes"] * FILLED_SHARE)


def count_bytes(folder: Path) -> int | None:
    """What a folder takes on its disk, by `du`, which no depth of folders stops; None where it cannot be counted."""
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program, and a folder of ours
            ["du", "--summarize", "--one-file-system", "--block-size=1", "--", str(folder)],  # noqa: S607
            capture_output=True,
            timeout=COUNT_SECONDS_MAX,
            check=True,
            env={"PATH": SYSTEM_PATH, "LC_ALL": "C"},
        )
        return int(done.stdout.split()[0])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
