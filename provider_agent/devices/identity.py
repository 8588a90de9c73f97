"""Which card this is, by more than its UUID: place on the bus, serial number, and whether the kernel knows it.

The driver's library can be replaced by one that invents cards; the kernel's own lists are another witness. Whoever is
root can forge both: see SECURITY.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PROC_GPUS = "proc/driver/nvidia/gpus"
SYS_DEVICES = "sys/bus/pci/devices"
WSL_DEVICE = "dev/dxg"  # in Windows' Linux the card is not on the guest's bus
NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASS = "0x03"
BUS_CHARACTERS = 12  # 0000:3b:00.0; NVML writes the domain with eight digits
MISSING = "missing"
SERIAL_CHARACTERS_MAX = 40


def identity_of(nvml: Any, handle: Any, *, root: Path = Path("/")) -> dict[str, str | None]:
    """Details of a card: pci_bus_id, serial and the kernel's name for it, as far as each is known."""
    bus = _bus_id(nvml, handle)
    details: dict[str, str | None] = {"pci_bus_id": bus, "serial": _serial(nvml, handle)}
    if bus is not None and not (root / WSL_DEVICE).exists():
        details["kernel"] = kernel_gpus(root).get(bus, MISSING)
    return details


def kernel_gpus(root: Path = Path("/")) -> dict[str, str]:
    """NVIDIA's cards as the kernel lists them: place on the bus -> model, or "listed" where only the bus knows it."""
    found = {}
    for folder in sorted((root / SYS_DEVICES).glob("*")):
        if _read(folder / "vendor") == NVIDIA_VENDOR and _read(folder / "class").startswith(DISPLAY_CLASS):
            found[_place(folder.name)] = "listed"
    for folder in sorted((root / PROC_GPUS).glob("*")):
        for line in _read(folder / "information").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "Model" and value.strip():
                found[_place(folder.name)] = value.strip()
    return found


def _bus_id(nvml: Any, handle: Any) -> str | None:
    try:
        bus = nvml.nvmlDeviceGetPciInfo(handle).busId
    except (nvml.NVMLError, AttributeError):
        return None
    return _place(bus.decode() if isinstance(bus, bytes) else bus)


def _serial(nvml: Any, handle: Any) -> str | None:
    """Datacenter cards have one; most others report none."""
    try:
        serial = nvml.nvmlDeviceGetSerial(handle)
    except (nvml.NVMLError, AttributeError):
        return None
    return str(serial.decode() if isinstance(serial, bytes) else serial)[:SERIAL_CHARACTERS_MAX]


def _place(bus: str) -> str:
    return bus.strip().lower()[-BUS_CHARACTERS:]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
