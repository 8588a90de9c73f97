"""What this replica computes on, as the container was given it. No torch: an engine loads it, not the runtime."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from runtimes.contract import Env
from runtimes.serve.engines.base import Devices

QUERY_SECONDS_MAX = 30
MIB = 1 << 20
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
CGROUP_EVENTS = Path("/sys/fs/cgroup/memory.events")


def find_devices(env: Mapping[str, str]) -> Devices:
    """From the contract's variables, with the memory that is there."""
    kind = env.get(Env.DEVICE_KIND) or "cpu"
    count = int(env.get(Env.DEVICES_PER_NODE) or 1)
    return Devices(kind, count, _gpu_memory() if kind == "cuda" else _container_memory())


def kills_by_memory() -> int:
    """How many processes of this container the kernel has killed for want of memory; 0 if it has no count."""
    try:
        lines = CGROUP_EVENTS.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def _container_memory() -> int:
    """The container's limit, or all that the node has."""
    try:
        text = Path("/proc/meminfo").read_text()
        total = int(text.split("MemTotal:")[1].split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        total = 0
    try:
        limit = int(CGROUP_LIMIT.read_text())
    except (OSError, ValueError):  # the file is absent, or contains `max`
        return total
    return min(limit, total) if total else limit


def _gpu_memory() -> int:
    """Of the smallest visible GPU; 0 if it is unknown."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        done = subprocess.run(  # noqa: S603 - found on the path, with fixed arguments
            [program, "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=QUERY_SECONDS_MAX,
            check=True,
        )
        return min(int(line) for line in done.stdout.split()) * MIB
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0
