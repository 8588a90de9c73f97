"""Memory and numbers of GPUs by their data sheets: for a job file that names models of devices."""

from __future__ import annotations

import re
from collections.abc import Iterable

GB = 10**9
# By words of the model's name; the first whose words are all in it counts. Of two sizes it is the larger.
MEMORY_GB = (
    ("B300", 288),
    ("B200", 180),
    ("GH200", 96),
    ("H200", 141),
    ("H100", 80),
    ("A100 40GB", 40),
    ("A100", 80),
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


REPORTED_MAX = 1.08  # drivers report up to so much of a data sheet's figure: an RTX 4090 has 25.8 of 24 GB
WITHOUT_BFLOAT16 = frozenset({"T4", "V100", "P100"})


def memory_of_models(models: Iterable[str]) -> int | None:
    """Bytes of the largest of these models; None where one is not known: it may be larger than the others."""
    sizes = [_memory_gb(model) for model in models]
    known = [size for size in sizes if size is not None]
    return max(known) * GB if known and len(known) == len(sizes) else None


def have_bfloat16(models: Iterable[str]) -> bool:
    """Whether all of these models multiply it fast; those that are not known are taken to."""
    return not any(WITHOUT_BFLOAT16 & _words(model) for model in models)


def _memory_gb(model: str) -> int | None:
    words = _words(model)
    return next((size for name, size in MEMORY_GB if set(name.split()) <= words), None)


def _words(model: str) -> set[str]:
    return set(re.findall(r"[A-Z0-9]+", model.upper()))
