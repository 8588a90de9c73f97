"""The computer itself: operating system, Python, memory, disk."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

from provider_agent.preflight.finding import Finding

PYTHON_MIN = (3, 11)
MACHINES = ("x86_64", "aarch64")
MEMORY_MIB_MIN = 2 * 1024
DISK_MIB_MIN = {"docker": 20 * 1024, "process": 5 * 1024}  # images and checkpoints; or an environment with torch
MIB = 1024 * 1024


def check_system() -> Finding:
    """Linux on a processor that the agent's libraries are built for."""
    found = f"{system_name()}, kernel {platform.release()}, {platform.machine()}"
    if sys.platform != "linux":
        return Finding("FIX", "system", found, "use Linux: a node needs its namespaces, and NVIDIA's driver for it")
    if platform.machine() not in MACHINES:
        return Finding("FIX", "system", found, f"use a computer with {' or '.join(MACHINES)}")
    return Finding("PASS", "system", found)


def check_python() -> Finding:
    """An interpreter that the agent runs on, with what makes virtual environments."""
    import importlib.util

    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < PYTHON_MIN:
        return Finding("FIX", "python", found, "install Python 3.11 or newer, for example: apt install python3.11-venv")
    if sys.prefix == sys.base_prefix and not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        return Finding("FIX", "python", f"{found} lacks its venv module", "apt install python3-venv")
    return Finding("PASS", "python", found)


def check_memory() -> Finding:
    """Enough for the agent and a program."""
    total_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
    if total_mib < MEMORY_MIB_MIN:
        return Finding("FIX", "memory", f"{total_mib} MiB", f"use a computer with at least {MEMORY_MIB_MIN} MiB")
    return Finding("PASS", "memory", f"{total_mib} MiB")


def check_disk(folder: Path, executor: str) -> Finding:
    """Free disk space for the node's work, in `folder` or where it will be made."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    free_mib, needed_mib = shutil.disk_usage(there).free // MIB, DISK_MIB_MIN[executor]
    if free_mib < needed_mib:
        fix = f"free {needed_mib - free_mib} MiB below {there}, or choose another disk with --data FOLDER"
        return Finding("FIX", "disk", f"{free_mib} MiB free below {there}, {needed_mib} are needed", fix)
    return Finding("PASS", "disk", f"{free_mib} MiB free below {there}")


def system_name() -> str:
    """Debian GNU/Linux 12 (bookworm), and the like."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return platform.system()
