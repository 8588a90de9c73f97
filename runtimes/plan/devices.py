"""Memory of GPUs by their data sheets: for a job file that names models of devices and no memory."""

from __future__ import annotations

import re
from collections.abc import Iterable

GB = 10**9
# By words of the model's name; the first whose words are all in it counts. Of two sizes it is the less.
MEMORY_GB = (
    ("B300", 288),
    ("B200", 180),
    ("GH200", 96),
    ("H200", 141),
    ("H100", 80),
    ("A100 80GB", 80),
    ("A100", 40),
    ("L40S", 48),
    ("L40", 48),
    ("L4", 24),
    ("A40", 48),
    ("A10", 24),
    ("A6000", 48),
    ("RTX 5090", 32),
    ("RTX 4090", 24),
    ("RTX 3090", 24),
    ("T4", 16),
)


def memory_of_models(models: Iterable[str]) -> int | None:
    """Bytes of the smallest of these models; None where none is known."""
    known = [size for model in models if (size := _memory_gb(model)) is not None]
    return min(known) * GB if known else None


def _memory_gb(model: str) -> int | None:
    words = set(re.findall(r"[A-Z0-9]+", model.upper()))
    return next((size for name, size in MEMORY_GB if set(name.split()) <= words), None)
