"""NVIDIA GPUs as NVML reports them. A machine without driver or GPU has none; that is no error."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

from provider_agent.devices.identity import identity_of
from provider_agent.protocol import DeviceFacts, DeviceKind

MIB = 1024 * 1024
NVML_LIBRARY = "libnvidia-ml.so.1"  # of the driver; pynvml wraps it


def find_gpus(nvml: Any = None) -> list[DeviceFacts]:
    """Every GPU that NVML lists, by its UUID; `nvml` is the library's boundary, faked in tests."""
    if nvml is None:
        if not has_driver():
            return []
        import pynvml  # two megabytes: a node without a driver never loads it

        nvml = pynvml
    with _session(nvml) as is_open:
        if not is_open:
            return []
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        cuda = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
        return [_gpu_facts(nvml, index, driver, cuda) for index in range(nvml.nvmlDeviceGetCount())]


def has_driver() -> bool:
    """Whether the driver's library is here; it may still find no GPU."""
    try:
        ctypes.CDLL(NVML_LIBRARY)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _session(nvml: Any) -> Iterator[bool]:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        nvml.nvmlShutdown()


def _gpu_facts(nvml: Any, index: int, driver: str, cuda: int) -> DeviceFacts:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return DeviceFacts(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        index=index,
        kind=DeviceKind.GPU,
        model=_text(nvml.nvmlDeviceGetName(handle)),
        memory_mib=int(memory.total) // MIB,
        details={
            "driver": driver,
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
            "compute_capability": f"{major}.{minor}",
            "pcie_generation": _optional(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
            "pcie_width": _optional(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle),
            "nvlinks": _nvlinks(nvml, handle),
            "ecc": _ecc(nvml, handle),
            "power_limit_watts": _milliwatts(_optional(nvml, "nvmlDeviceGetPowerManagementLimit", handle)),
            **identity_of(nvml, handle),
        },
    )


def _optional(nvml: Any, function: str, handle: Any) -> int | None:
    """A figure that not every GPU, virtual GPU or driver reports."""
    try:
        return int(getattr(nvml, function)(handle))
    except nvml.NVMLError:
        return None


def _nvlinks(nvml: Any, handle: Any) -> int:
    """How many NVLinks are up."""
    count = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            count += int(nvml.nvmlDeviceGetNvLinkState(handle, link)) == nvml.NVML_FEATURE_ENABLED
        except nvml.NVMLError:
            break
    return count


def _ecc(nvml: Any, handle: Any) -> str | None:
    """Whether its memory corrects errors: on, off, or not known."""
    try:
        current, _ = nvml.nvmlDeviceGetEccMode(handle)
    except nvml.NVMLError:
        return None
    return "on" if current == nvml.NVML_FEATURE_ENABLED else "off"


def _milliwatts(value: int | None) -> int | None:
    return None if value is None else value // 1000


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
