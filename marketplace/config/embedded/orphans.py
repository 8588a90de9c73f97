"""Ends what an earlier start left behind, when its supervisor was killed and a child did not notice.

The holder of the data folder's lock may do that: no other process uses it. A process is identified by pid and start
time, so a stranger that got an old pid is never touched.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

import psutil

from marketplace.config.embedded.children import Child

END_SECONDS = 15.0
START_TIME_TOLERANCE_SECONDS = 0.02


def remember(file: Path, children: Iterable[Child]) -> None:
    """Write down which processes run now."""
    rows = []
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(child.pid).create_time()
            rows.append({"name": child.recipe.name, "pid": child.pid, "started": started})
    part = file.with_suffix(".part")
    part.write_text(json.dumps(rows))
    part.replace(file)


def end_orphans(file: Path) -> list[str]:
    """End every remembered process that still runs, with its children; the names of those that did."""
    found: list[psutil.Process] = []
    names: list[str] = []
    for row in _read(file):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(row["pid"]))
            if abs(process.create_time() - float(row["started"])) < START_TIME_TOLERANCE_SECONDS:
                found += [process, *process.children(recursive=True)]
                names.append(str(row["name"]))
    # They have had their death signal; what is still shutting down (PostgreSQL) gets time, then all are killed.
    _, alive = psutil.wait_procs(found, timeout=END_SECONDS if found else 0)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=END_SECONDS)
    file.unlink(missing_ok=True)
    return names


def _read(file: Path) -> list[dict[str, str]]:
    try:
        rows = json.loads(file.read_text())
    except (OSError, ValueError):
        return []
    return rows if isinstance(rows, list) else []
