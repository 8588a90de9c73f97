"""Measures the node's devices with runtimes.probe, under the same limits as jobs, and reports the result once.

A lock on a shared path lets the agents of one machine measure one after the other.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from provider_agent.client import with_retries
from provider_agent.context import AgentContext
from provider_agent.devices.base import cores_of
from provider_agent.errors import ExecutorFailed
from provider_agent.executors.base import LaunchSpec, log_path
from provider_agent.node.own_programs import run_program
from provider_agent.protocol import DeviceFacts, DeviceKind, DeviceMeasurement, MeasurementRequest

PROBE_SECONDS = 4
BENCHMARK_SECONDS_MAX = 600.0
LOCK_SECONDS_MAX = 3600.0
POLL_SECONDS = 0.2
LOG_CHARACTERS_SHOWN = 600
FACT_MEASURED = "measured"

log = logging.getLogger(__name__)


async def measure_once(context: AgentContext) -> None:
    """Measure and report the healthy devices, unless each was reported already; raises AgentError or OSError."""
    healthy = [device for uuid, device in context.devices.items() if uuid not in context.faults]
    uuids = ",".join(device.uuid for device in healthy)
    reported = (context.journal.load_fact(FACT_MEASURED) or "").split(",")
    if {device.uuid for device in healthy} <= set(reported):
        return
    async with hold_benchmark_lock(context):
        log.info("Benchmark started. devices=%s", uuids)
        request = await _run_probe(context, healthy, seconds=PROBE_SECONDS)
    await with_retries(lambda: context.client.send_measurements(request))
    context.journal.save_fact(FACT_MEASURED, uuids)
    log.info("Benchmark reported. devices=%s", uuids)


async def probe_free_devices(context: AgentContext, *, seconds: int) -> None:
    """A short run on every device that is not in use now; raises AgentError or OSError if it fails."""
    async with AsyncExitStack() as stack:
        free = []
        for uuid, device in sorted(context.devices.items()):
            if uuid not in context.faults and not context.device_locks[uuid].locked():
                await stack.enter_async_context(context.device_locks[uuid])
                free.append(device)
        if free:
            await _run_probe(context, free, seconds=seconds)


@asynccontextmanager
async def hold_benchmark_lock(context: AgentContext) -> AsyncIterator[None]:
    """Hold the lock that all agents of this machine share, where the configuration names one."""
    path = Path(context.config.benchmark_lock or context.folder.root / "benchmark.lock")
    with path.open("a") as lock:  # noqa: ASYNC230 - opening a local file
        async with asyncio.timeout(LOCK_SECONDS_MAX):
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(POLL_SECONDS)
        yield


async def _run_probe(context: AgentContext, devices: list[DeviceFacts], *, seconds: int) -> MeasurementRequest:
    """Run the probe through the executor, as any program, and read the JSON line it prints."""
    spec = probe_spec(context, "runtimes.probe", devices, ["--seconds", str(seconds), "--json"])
    async with run_program(context.executor, spec) as handle:
        async with asyncio.timeout(BENCHMARK_SECONDS_MAX):
            while (ended := await context.executor.poll(handle)) is None:  # noqa: ASYNC110 - polling a process
                await asyncio.sleep(POLL_SECONDS)
        printed = log_path(spec.folder).read_text(errors="replace")
    found = _read_result(printed)
    if ended.code != 0 or found is None:
        raise ExecutorFailed(f"The probe failed ({ended}): {printed[-LOG_CHARACTERS_SHOWN:]}")
    return _map_to_devices(devices, found)


def probe_spec(context: AgentContext, module: str, devices: list[DeviceFacts], options: list[str]) -> LaunchSpec:
    """How to run a program of the probe on these devices; there is no lease."""
    executor = context.executor
    lease_id = uuid4()  # names the folder and marks the processes
    folder = context.folder.lease(lease_id)
    cores = sorted({core for device in devices for core in cores_of(device)})
    is_gpu = devices[0].kind is DeviceKind.GPU
    names = [f"{'cuda' if is_gpu else 'cpu'}:{index}" for index in range(len(devices))]
    threads = {"OMP_NUM_THREADS": str(max(len(cores) // len(devices), 1))} if cores else {}
    probe = [executor.python(), "-m", module, "--devices", ",".join(names)]
    return LaunchSpec(
        lease_id=lease_id,
        folder=folder,
        argv=[*probe, *options],
        env={"LANG": "C.UTF-8", **executor.environment(executor.seen_work(folder)), **threads},
        cores=cores,
        gpu_uuids=[device.uuid for device in devices] if is_gpu else [],
        image=context.config.train_image if executor.name == "docker" else "",
    )


def _read_result(printed: str) -> dict[str, Any] | None:
    """The probe's JSON line among whatever libraries print."""
    for line in reversed(printed.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and "probe_version" in found:
            return found
    return None


def _map_to_devices(devices: list[DeviceFacts], found: dict[str, Any]) -> MeasurementRequest:
    """The probe numbers its devices; the marketplace knows them by UUID."""
    uuids = [device.uuid for device in devices]
    measured = found["devices"]
    if len(measured) != len(uuids):
        raise ExecutorFailed(f"The probe measured {len(measured)} devices of {len(uuids)}.")
    return MeasurementRequest(
        probe_version=found["probe_version"],
        devices=[
            DeviceMeasurement(
                uuid=uuid,
                flops_per_second=entry["flops_per_second"],
                memory_bytes_per_second=entry["memory_bytes_per_second"],
                seconds=entry["seconds"],
            )
            for uuid, entry in zip(uuids, measured, strict=True)
        ],
    )
