"""NVIDIA's library, faked where no GPU is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NvmlError(Exception):
    """Stands for pynvml.NVMLError."""


def fake_nvml(count: int = 2, *, works: bool = True, **changes: Any) -> SimpleNamespace:
    """A library that reports `count` GPUs."""
    opened: list[str] = []

    def init() -> None:
        if not works:
            raise NvmlError("driver not loaded")
        opened.append("open")

    values: dict[str, Any] = {
        "NVMLError": NvmlError,
        "opened": opened,
        "nvmlInit": init,
        "nvmlShutdown": opened.pop if works else None,
        "nvmlSystemGetDriverVersion": lambda: "570.86.10",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12080,
        "nvmlDeviceGetCount": lambda: count,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=(80 + handle) << 30),
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetName": lambda handle: "NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 5,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda handle: 16,
        "nvmlDeviceGetPowerManagementLimit": lambda handle: 700_000,
        "NVML_NVLINK_MAX_LINKS": 18,
        "NVML_FEATURE_ENABLED": 1,
        "nvmlDeviceGetNvLinkState": lambda handle, link: int(link < 4),
        "nvmlDeviceGetEccMode": lambda handle: (1, 1),
    }
    return SimpleNamespace(**values | changes)
