"""Looks after the machine: figures for the marketplace's time series, and devices that must not be rented.

A device with a fault ends what runs on it (the marketplace tries it elsewhere) and is reported with the next sync; the
others stay in the market. It is back as soon as it is healthy.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Mapping
from uuid import UUID

import psutil

from provider_agent.context import AgentContext
from provider_agent.devices.health import GpuWatch, Reading
from provider_agent.executors.process import processes_of
from provider_agent.lease.attempts import Attempt
from provider_agent.protocol import DEVICES_PER_NODE_MAX, FAULT_CHARACTERS_MAX, DeviceKind, Load, Reason

POLL_SECONDS = 15.0
MIB = 1024 * 1024
PERCENT = 100.0

log = logging.getLogger(__name__)


class Health:
    """What is remembered between two looks."""

    def __init__(self, context: AgentContext, attempts: Mapping[UUID, Attempt]) -> None:
        self._context = context
        self._attempts = attempts
        self._gpus = _open_gpus(context)
        self._cpu_seconds: dict[UUID, tuple[float, float]] = {}  # lease -> (when looked, processor time)
        self._network: tuple[float, int, int] | None = None
        psutil.cpu_percent()  # the first call only begins to count

    async def loop(self) -> None:
        """Look until cancelled; what cannot be read is left out, and never ends the agent."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.look()
            except (OSError, psutil.Error, ValueError) as error:
                log.warning("A look at this machine failed: %s", error)

    async def look(self) -> None:
        """One look: faults first, then figures."""
        readings = await asyncio.to_thread(self._gpus.look) if self._gpus is not None else {}
        self._take_faults(readings)
        self._context.load = await asyncio.to_thread(self._measure, readings)

    def close(self) -> None:
        """Let go of the driver's library."""
        if self._gpus is not None:
            self._gpus.close()

    def _take_faults(self, readings: dict[str, Reading]) -> None:
        context = self._context
        faults = {uuid: each.fault[:FAULT_CHARACTERS_MAX] for uuid, each in readings.items() if each.fault}
        for uuid in faults.keys() - context.faults.keys():
            log.error("A device leaves the market: %s device=%s", faults[uuid], uuid)
        for uuid in context.faults.keys() - faults.keys():
            log.warning("A device is healthy again. device=%s", uuid)
        if faults == context.faults:
            return
        context.faults = faults
        context.facts_changed = True
        for attempt in list(self._attempts.values()):
            if faults.keys() & set(attempt.entry.assignment.device_uuids):
                attempt.request_stop(Reason.DEVICE_FAILED)
        context.wake.set()
        context.devices_changed.set()

    # --- figures

    def _measure(self, readings: dict[str, Reading]) -> Load:
        running = [attempt for attempt in self._attempts.values() if not attempt.entry.has_ended]
        return Load(
            node=self._node_figures(len(running)),
            devices={uuid: each.figures for uuid, each in readings.items()},
            leases={
                attempt.entry.lease_id: self._lease_figures(attempt, readings)
                for attempt in running[:DEVICES_PER_NODE_MAX]
            },
        )

    def _node_figures(self, running: int) -> dict[str, float]:
        memory = psutil.virtual_memory()
        figures = {
            "cpu_percent": psutil.cpu_percent(),
            "memory_used_mib": (memory.total - memory.available) // MIB,
            "disk_free_mib": shutil.disk_usage(self._context.folder.root).free // MIB,
            "programs": float(running),
            "ghosts_killed": float(self._context.orphans_killed),
        }
        now, network = time.monotonic(), psutil.net_io_counters()
        if network is not None:
            if self._network is not None:
                at, sent, received = self._network
                figures["sent_bytes_per_second"] = max(network.bytes_sent - sent, 0) / max(now - at, 1.0)
                figures["received_bytes_per_second"] = max(network.bytes_recv - received, 0) / max(now - at, 1.0)
            self._network = now, network.bytes_sent, network.bytes_recv
        return figures

    def _lease_figures(self, attempt: Attempt, readings: dict[str, Reading]) -> dict[str, float]:
        """Of a program's processes, as far as this user may see them, and of its devices."""
        lease_id, seconds, memory = attempt.entry.lease_id, 0.0, 0
        for pid in processes_of(lease_id):
            try:
                process = psutil.Process(pid)
                with process.oneshot():
                    times = process.cpu_times()
                    seconds += times.user + times.system
                    memory += process.memory_info().rss
            except psutil.Error:
                continue
        figures = {"memory_used_mib": memory / MIB}
        now, before = time.monotonic(), self._cpu_seconds.get(lease_id)
        self._cpu_seconds = {key: value for key, value in self._cpu_seconds.items() if key in self._attempts}
        self._cpu_seconds[lease_id] = now, seconds
        if before is not None:
            figures["cpu_percent"] = max(seconds - before[1], 0.0) / max(now - before[0], 1.0) * PERCENT
        for name, label in (("utilization_percent", "gpu_percent"), ("memory_used_mib", "gpu_memory_used_mib")):
            devices = [readings[uuid].figures for uuid in attempt.entry.assignment.device_uuids if uuid in readings]
            found = [each[name] for each in devices if name in each]
            if found:
                figures[label] = sum(found) / len(found)
        return figures


def _open_gpus(context: AgentContext) -> GpuWatch | None:
    uuids = [uuid for uuid, device in context.devices.items() if device.kind is DeviceKind.GPU]
    if not uuids:
        return None
    import pynvml  # where there is no GPU, it is not loaded

    watch = GpuWatch(uuids, pynvml)
    return watch if watch.open() else None
