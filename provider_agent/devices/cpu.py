"""Shares of the processor as devices, each pinned to cores of its own as far as they go."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

from provider_agent.errors import BadConfig
from provider_agent.protocol import DeviceFacts, DeviceKind

MIB = 1024 * 1024
MODEL_CHARACTERS_MAX = 100


def share_cpu(count: int, cores: list[int], *, key_prefix: str) -> list[DeviceFacts]:
    """`count` devices over `cores` (empty: all usable ones); with fewer cores than devices, devices share."""
    usable = sorted(os.sched_getaffinity(0))
    missing = sorted(set(cores) - set(usable))
    if missing:
        raise BadConfig(f"This process may not use the cores {missing}; usable are {usable}.")
    pool = sorted(set(cores)) or usable
    memory_mib = max(psutil.virtual_memory().total // MIB // count, 1)
    return [
        DeviceFacts(
            uuid=f"cpu-{key_prefix}-{index}",
            index=index,
            kind=DeviceKind.CPU,
            model=cpu_model(),
            memory_mib=memory_mib,
            details={"cores": ",".join(str(core) for core in _cores_of_share(pool, index, count))},
        )
        for index in range(count)
    ]


def cpu_model() -> str:
    """The processor's name as Linux reports it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()[:MODEL_CHARACTERS_MAX] or "CPU"
    return platform.machine() or "CPU"


def _cores_of_share(pool: list[int], index: int, count: int) -> list[int]:
    if len(pool) < count:
        return [pool[index % len(pool)]]
    width = len(pool) // count
    return pool[index * width : (index + 1) * width]
