"""For step events: what GPUs multiply at most by their data sheets, and the most memory that this process took."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # proc(5): the high-water mark of the resident set

# Dense bfloat16 with float32 sums, in FLOP/s, by the driver's name; the first whose words are in it counts.
BFLOAT16_PEAKS = (
    ("B200", 2250e12),
    ("GH200", 989e12),
    ("H200 NVL", 835e12),
    ("H200", 989e12),
    ("H100 NVL", 835e12),
    ("H100 PCIe", 756e12),
    ("H100", 989e12),
    ("A100", 312e12),
    ("L40S", 362e12),
    ("RTX 5090", 209e12),
    ("RTX 4090", 165e12),
    ("RTX 3090", 71e12),
    ("RTX A6000", 155e12),
    ("A40", 150e12),
    ("A10", 125e12),
    ("L4", 121e12),
)


def bfloat16_peak(device: torch.device) -> float | None:
    """Of this device; None for one that the table lacks, and for processors."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in BFLOAT16_PEAKS if re.search(rf"\b{part}\b", name)), None)


def forget_peak(device: torch.device) -> None:
    """What was taken before the first step, such as for the data, is no part of the steps' peak."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # a container may not let it; then the peak is that of the whole process
        CLEAR.write_text(RESET_PEAK)


def peak_bytes(device: torch.device) -> int | None:
    """Of this rank since `forget_peak`: what torch's allocator held on a GPU, else the process's; None: not known."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_reserved(device))
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
