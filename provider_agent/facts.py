"""What this machine is, as far as the agent can see it."""

from __future__ import annotations

import os
import platform
import shutil
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import psutil

from provider_agent.config import AgentSettings, DataFolder
from provider_agent.devices.cpu import MIB, cpu_model
from provider_agent.devices.memory import memory_for_leases_mib
from provider_agent.executors.base import Executor
from provider_agent.protocol import CACHE_FEATURE, PREPARED_FEATURE, DeviceFacts, DeviceKind, NodeFacts, UpdateFacts

# What this agent's runtimes know and earlier ones did not: a job that needs one is placed on no older agent.
RUNTIME_FEATURES = (
    "outputs",
    "inputs",
    "checkpoint_path",
    "checkpoint_auto",
    "setup",
    "requirements",
    "generations",
    "generations.sizes",
    "requirements_lock",
    "lent_paths",
    "eval.endpoints",
    "train.ddp",
    "train.hsdp",
    "train.shares",
    "train.activation_checkpointing",
    "train.compile",
    "train.offload",
    "train.open_learning_rate",
    "train.open_sequence_length",
    "train.chat_template",
    "train.train_on_inputs",
    "train.packing",
    "train.lora",
    "train.ema",
    "train.early_stop",
    "train.deterministic",
    "train.profile",
    "train.quantize",
    "train.dpo",
    "train.s3_data",
)
EVALUATION_FEATURE = "eval"  # only where the harness is installed, which is large

DISK_STEP_MIB = 1024  # free disk is reported in whole steps, so that facts do not change with every log line


@cache
def agent_version() -> str:
    """The installed version of the distribution, or that this is a source checkout."""
    try:
        return version("gpusouk")
    except PackageNotFoundError:
        return "0+source"


def find_facts(
    settings: AgentSettings,
    folder: DataFolder,
    devices: list[DeviceFacts],
    *,
    executor: Executor,
    engine_version: str,
    fabric_key: str = "",
    speeds: tuple[int, int] = (0, 0),
    updates: UpdateFacts | None = None,
    is_server: bool = False,
    is_evaluator: bool = False,
) -> NodeFacts:
    """The machine with its devices, as it is once the executor was checked. Of shared host folders only the labels.

    `speeds` are its disk's and its line's, in bytes per second; `fabric_key` the public one, in hex;
    `is_server`, `is_evaluator`: models can be served, evaluated here, which is unknown before the node is enrolled.
    """
    has_gpus = any(device.kind is DeviceKind.GPU for device in devices)
    return NodeFacts(
        agent_version=agent_version(),
        operating_system=_operating_system(),
        kernel=platform.release()[:120],
        cpu_model=cpu_model(),
        cpu_count=len(os.sched_getaffinity(0)),
        memory_mib=max(psutil.virtual_memory().total // MIB, 1),
        disk_free_mib=shutil.disk_usage(folder.root).free // MIB // DISK_STEP_MIB * DISK_STEP_MIB,
        executor=settings.executor,
        engine_version=engine_version[:80],
        allows_strangers=settings.executor == "process" and settings.allow_strangers,
        isolation=executor.isolation(has_gpus=has_gpus),
        egress=executor.has_egress,
        lent=sorted(label for label, path in settings.lend.items() if path.is_dir()),
        disk_bytes_per_second=speeds[0],
        bandwidth_bytes_per_second=speeds[1],
        gang=executor.gang(has_gpus=has_gpus),
        fabric_key=fabric_key,
        updates=updates or UpdateFacts(),
        has_token_receipts=True,
        is_server=is_server,
        shm_mib=executor.shm_mib(memory_for_leases_mib()),
        runtime_features=[
            *RUNTIME_FEATURES,
            *([EVALUATION_FEATURE] if is_evaluator else []),
            *([CACHE_FEATURE, PREPARED_FEATURE] if settings.cache_gib else []),
        ],
        devices=devices,
    )


def _operating_system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")[:120]
    except OSError:
        return platform.system()
