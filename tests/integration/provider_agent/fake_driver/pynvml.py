# ruff: noqa: N816 - the names are the library's
"""Stands in for NVIDIA's library: the GPUs that the JSON file of SOUK_FAKE_GPUS describes, as they are at each call.

{"GPU-0": {"lost": false, "temperature": 40, "uncorrected": 0, "xids": [13], "remap_failed": false, "percent": 0}, ...}
An Xid in the list is reported once for each time that it is written there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NOT_FOUND, NVML_ERROR_TIMEOUT, NVML_ERROR_GPU_IS_LOST = 3, 6, 10, 15
NVML_TEMPERATURE_GPU = 0
NVML_TEMPERATURE_THRESHOLD_SHUTDOWN, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 0, 1
NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 0, 1, 0
NVML_CLOCK_SM, NVML_FEATURE_ENABLED, NVML_NVLINK_MAX_LINKS = 1, 1, 18
nvmlEventTypeXidCriticalError = 8
nvmlClocksThrottleReasonSwPowerCap = 4
nvmlClocksThrottleReasonSwThermalSlowdown = 0x20
nvmlClocksThrottleReasonHwThermalSlowdown = 0x40
nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80

_reported: dict[str, int] = {}


class NVMLError(Exception):
    """As the library's: `value` is its number."""

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


def _gpus() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(Path(os.environ["SOUK_FAKE_GPUS"]).read_text())
    return found


def _gpu(handle: str) -> dict[str, Any]:
    gpu = _gpus().get(handle)
    if gpu is None or gpu.get("lost"):
        raise NVMLError(NVML_ERROR_GPU_IS_LOST if gpu else NVML_ERROR_NOT_FOUND)
    return gpu


def nvmlInit() -> None:
    _gpus()


def nvmlShutdown() -> None:
    pass


def nvmlSystemGetDriverVersion() -> str:
    return "570.86.10"


def nvmlSystemGetCudaDriverVersion_v2() -> int:
    return 12080


def nvmlDeviceGetCount() -> int:
    return len(_gpus())


def nvmlDeviceGetHandleByIndex(index: int) -> str:
    return sorted(_gpus())[index]


def nvmlDeviceGetHandleByUUID(uuid: str) -> str:
    _gpu(uuid)
    return uuid


def nvmlDeviceGetUUID(handle: str) -> str:
    return handle


def nvmlDeviceGetName(handle: str) -> str:
    return "NVIDIA H100 80GB HBM3"


def nvmlDeviceGetMemoryInfo(handle: str) -> SimpleNamespace:
    return SimpleNamespace(total=80 << 30, used=_gpu(handle).get("used_mib", 0) << 20)


def nvmlDeviceGetCudaComputeCapability(handle: str) -> tuple[int, int]:
    return 9, 0


def nvmlDeviceGetTemperature(handle: str, sensor: int) -> int:
    return int(_gpu(handle).get("temperature", 40))


def nvmlDeviceGetTemperatureThreshold(handle: str, threshold: int) -> int:
    return 95 if threshold == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN else 90


def nvmlDeviceGetUtilizationRates(handle: str) -> SimpleNamespace:
    return SimpleNamespace(gpu=_gpu(handle).get("percent", 0), memory=0)


def nvmlDeviceGetPowerUsage(handle: str) -> int:
    return 120_500


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: str) -> int:
    return int(_gpu(handle).get("throttle", 0))


def nvmlDeviceGetClockInfo(handle: str, kind: int) -> int:
    return 1980


def nvmlDeviceGetCurrPcieLinkWidth(handle: str) -> int:
    return 16


def nvmlDeviceGetMaxPcieLinkGeneration(handle: str) -> int:
    return 5


nvmlDeviceGetMaxPcieLinkWidth = nvmlDeviceGetCurrPcieLinkWidth


def nvmlDeviceGetPowerManagementLimit(handle: str) -> int:
    raise NVMLError(NVML_ERROR_NOT_SUPPORTED)


def nvmlDeviceGetNvLinkState(handle: str, link: int) -> int:
    raise NVMLError(NVML_ERROR_NOT_SUPPORTED)


def nvmlDeviceGetEccMode(handle: str) -> tuple[int, int]:
    return 1, 1


def nvmlDeviceGetTotalEccErrors(handle: str, kind: int, counter: int) -> int:
    return int(_gpu(handle).get("uncorrected", 0)) if kind == NVML_MEMORY_ERROR_TYPE_UNCORRECTED else 7


def nvmlDeviceGetRemappedRows(handle: str) -> tuple[int, int, int, int]:
    return 0, 0, 0, int(_gpu(handle).get("remap_failed", False))


def nvmlEventSetCreate() -> list[str]:
    return []


def nvmlDeviceRegisterEvents(handle: str, kind: int, events: list[str]) -> None:
    events.append(handle)


def nvmlEventSetWait_v2(events: list[str], timeout_ms: int) -> SimpleNamespace:
    for handle in events:
        xids = _gpus().get(handle, {}).get("xids", [])
        reported = _reported.get(handle, 0)
        if reported < len(xids):
            _reported[handle] = reported + 1
            return SimpleNamespace(device=handle, eventData=xids[reported])
    raise NVMLError(NVML_ERROR_TIMEOUT)


def nvmlEventSetFree(events: list[str]) -> None:
    events.clear()
