"""What GPUs multiply at most, by their data sheets: what the share of it that a training uses is reckoned from."""

from __future__ import annotations

import re

import torch

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
