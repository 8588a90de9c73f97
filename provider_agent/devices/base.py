"""Finds the devices of this node: GPUs if there are any, else CPU shares."""

from __future__ import annotations

from provider_agent.config import AgentSettings
from provider_agent.devices.cpu import share_cpu
from provider_agent.devices.nvidia import find_gpus
from provider_agent.errors import BadConfig
from provider_agent.protocol import DeviceFacts


def find_devices(settings: AgentSettings, *, key_prefix: str) -> list[DeviceFacts]:
    """The devices that this node offers; `key_prefix` makes the names of CPU shares unique among nodes."""
    if settings.device_kind != "cpu":
        gpus = find_gpus()
        if gpus:
            return gpus
        if settings.device_kind == "gpu":
            raise BadConfig("No NVIDIA GPU was found. Install its driver, or enrol with --device-kind cpu.")
    return share_cpu(settings.devices, settings.cpu_cores, key_prefix=key_prefix)


def cores_of(device: DeviceFacts) -> list[int]:
    """The processor cores that a CPU share is pinned to; none for a GPU."""
    text = str(device.details.get("cores") or "")
    return [int(core) for core in text.split(",") if core]
