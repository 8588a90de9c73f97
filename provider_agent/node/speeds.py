"""Measures the speed of the disk and of the connection to the marketplace, once at each start, within bounds."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import time
from pathlib import Path

from provider_agent.client import Client
from provider_agent.errors import AgentError

DISK_BYTES = 16 * 1024 * 1024
DISK_CHUNK_BYTES = 1024 * 1024
DISK_SECONDS_MAX = 3.0
BANDWIDTH_SECONDS_MAX = 10.0

log = logging.getLogger(__name__)


async def measure_speeds(folder: Path, client: Client) -> tuple[int, int]:
    """(disk, bandwidth) in bytes per second; 0 for what could not be measured. Never raises AgentError or OSError."""
    disk = bandwidth = 0
    try:
        disk = await asyncio.to_thread(measure_disk, folder)
    except OSError as error:
        log.warning("The disk's speed was not measured: %s", error)
    try:
        async with asyncio.timeout(BANDWIDTH_SECONDS_MAX):
            bandwidth = await _measure_bandwidth(client)
    except (AgentError, TimeoutError) as error:
        log.warning("The bandwidth to the marketplace was not measured: %s", error)
    return disk, bandwidth


def measure_disk(folder: Path) -> int:
    """Bytes per second that are written and flushed below `folder`; leaves nothing there."""
    path = folder / f".speed-{os.getpid()}"
    chunk = os.urandom(DISK_CHUNK_BYTES)
    written, began = 0, time.monotonic()
    try:
        with path.open("wb", buffering=0) as out:
            while written < DISK_BYTES and time.monotonic() - began < DISK_SECONDS_MAX:
                written += out.write(chunk)
            os.fsync(out.fileno())
    finally:
        path.unlink(missing_ok=True)
    return int(written / max(time.monotonic() - began, 1e-6))


def give_back_memory() -> None:
    """Return memory that only the start needed to the system: an idle agent should cost little."""
    gc.collect()
    gc.freeze()  # what is left stays: later collections need not look at it, nor touch its pages
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; elsewhere there is none
    if trim is not None:
        trim(0)


async def _measure_bandwidth(client: Client) -> int:
    began = time.monotonic()
    size = await client.fetch_sample()
    return int(size / max(time.monotonic() - began, 1e-6))
