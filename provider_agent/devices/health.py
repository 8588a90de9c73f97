"""Looks at GPUs through NVML: figures to keep, and whether a device must leave the market.

lost       NVML reports it as lost, or does not find it any more
Xid        an event that means broken hardware (xids.py), until none came for XID_QUIET_SECONDS
memory     uncorrected errors since the driver was loaded, or rows that could not be remapped
heat       at its shutdown temperature, until it is below the one at which it slows down
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from provider_agent.devices.xids import XidKind, xid_of

XID_QUIET_SECONDS = 3600.0
EVENTS_PER_LOOK_MAX = 64
MIB = 1024 * 1024
MILLIWATTS = 1000


@dataclass(frozen=True)
class Reading:
    """One look at one device. `fault` is empty while it is healthy."""

    figures: dict[str, float] = field(default_factory=dict)
    fault: str = ""


@dataclass
class _Known:
    """What is remembered of a device between two looks."""

    hardware_xid: int = 0
    hardware_xid_at: float = 0.0
    application_xids: int = 0
    is_hot: bool = False


class GpuWatch:
    """An open session with the library; `nvml` is its boundary, faked in tests. Not for two threads at once."""

    def __init__(self, uuids: Iterable[str], nvml: Any) -> None:
        self._nvml = nvml
        self._known = {uuid: _Known() for uuid in uuids}
        self._events: Any = None

    def open(self) -> bool:
        """False where there is no driver."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError:
            return False
        self._listen()
        return True

    def close(self) -> None:
        """Let go of the library."""
        if self._events is not None:
            self._nvml.nvmlEventSetFree(self._events)
        self._nvml.nvmlShutdown()

    def look(self) -> dict[str, Reading]:
        """Every device as it is now."""
        self._read_events()
        return {uuid: self._look_at(uuid, known) for uuid, known in self._known.items()}

    # --- events

    def _listen(self) -> None:
        nvml = self._nvml
        try:
            self._events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return
        for uuid in self._known:
            try:
                handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
            except nvml.NVMLError:  # lost already, or a virtual GPU that has no events
                continue

    def _read_events(self) -> None:
        if self._events is None:
            return
        for _ in range(EVENTS_PER_LOOK_MAX):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = _text(self._nvml.nvmlDeviceGetUUID(event.device))
            except self._nvml.NVMLError:  # no more events
                return
            known, number = self._known.get(uuid), int(event.eventData)
            if known is None:
                continue
            kind = xid_of(number).kind
            if kind is XidKind.HARDWARE:
                known.hardware_xid, known.hardware_xid_at = number, time.monotonic()
            elif kind is XidKind.APPLICATION:
                known.application_xids += 1

    # --- one device

    def _look_at(self, uuid: str, known: _Known) -> Reading:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            temperature = float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        except nvml.NVMLError as error:
            is_lost = getattr(error, "value", None) in {nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_NOT_FOUND}
            return Reading(fault=f"fallen off the bus: NVML says {error}" if is_lost else "")
        figures = {"temperature_celsius": temperature, "application_xids": float(known.application_xids)}
        figures |= self._figures(handle)
        return Reading(figures, self._fault(handle, known, temperature, figures))

    def _figures(self, handle: Any) -> dict[str, float]:
        nvml = self._nvml
        usage = self._try("nvmlDeviceGetUtilizationRates", handle)
        memory = self._try("nvmlDeviceGetMemoryInfo", handle)
        power = self._try("nvmlDeviceGetPowerUsage", handle)
        throttle = int(self._try("nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0)
        hot = nvml.nvmlClocksThrottleReasonHwThermalSlowdown | nvml.nvmlClocksThrottleReasonSwThermalSlowdown
        weak = nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown | nvml.nvmlClocksThrottleReasonSwPowerCap
        ecc = nvml.NVML_VOLATILE_ECC
        found = {
            "utilization_percent": None if usage is None else usage.gpu,
            "memory_used_mib": None if memory is None else int(memory.used) // MIB,
            "power_watts": None if power is None else power / MILLIWATTS,
            "clock_mhz": self._try("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
            "throttled_by_heat": bool(throttle & hot),
            "throttled_by_power": bool(throttle & weak),
            "pcie_width": self._try("nvmlDeviceGetCurrPcieLinkWidth", handle),
            "memory_errors_corrected": self._try(
                "nvmlDeviceGetTotalEccErrors", handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, ecc
            ),
            "memory_errors_uncorrected": self._try(
                "nvmlDeviceGetTotalEccErrors", handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, ecc
            ),
        }
        return {name: float(value) for name, value in found.items() if value is not None}

    def _fault(self, handle: Any, known: _Known, temperature: float, figures: dict[str, float]) -> str:
        """Why this device may not be rented now; empty while it may."""
        if known.hardware_xid and time.monotonic() - known.hardware_xid_at < XID_QUIET_SECONDS:
            return f"Xid {known.hardware_xid}: {xid_of(known.hardware_xid).name}"
        known.hardware_xid = 0
        if errors := int(figures.get("memory_errors_uncorrected", 0)):
            return f"{errors} uncorrected memory errors since the driver was loaded"
        rows = self._try("nvmlDeviceGetRemappedRows", handle)
        if rows is not None and rows[3]:
            return "rows of its memory could not be remapped"
        known.is_hot = self._is_hot(handle, known, temperature)
        return f"at {temperature:.0f} degrees Celsius, where it shuts down" if known.is_hot else ""

    def _is_hot(self, handle: Any, known: _Known, temperature: float) -> bool:
        nvml = self._nvml
        limit = nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN if known.is_hot else nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
        degrees = self._try("nvmlDeviceGetTemperatureThreshold", handle, limit)
        return bool(degrees) and temperature >= degrees

    def _try(self, function: str, *arguments: Any) -> Any:
        """A figure that not every GPU, virtual GPU or driver reports."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError:
            return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
