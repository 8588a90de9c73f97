"""What a GPU's hardware and driver can run: compute capability and the newest CUDA, as (major, minor).

Both are reported by the node's agent, and a provider may change what it reports. The compute capability of a model is
NVIDIA's and known (https://developer.nvidia.com/cuda-gpus): of a model in the table never more than that counts, and
device checks hold the model itself to its speed. The CUDA version of a driver, and the capability of a model that is
not in the table, cannot be checked from here: who reports too much is given jobs that fail at their start, at the
customer's cost until a dispute, and gains their first minutes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

Version = tuple[int, int]
UNKNOWN: Final[Version] = (0, 0)  # below everything that a job can ask for
_VERSION = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})")
# By words of the model's name; the first row whose words are all in it counts.
CAPABILITIES: Final[tuple[tuple[str, Version], ...]] = (
    ("B300", (10, 3)),
    ("GB300", (10, 3)),
    ("B200", (10, 0)),
    ("GB200", (10, 0)),
    ("GH200", (9, 0)),
    ("H200", (9, 0)),
    ("H100", (9, 0)),
    ("H800", (9, 0)),
    ("H20", (9, 0)),
    ("L40S", (8, 9)),
    ("L40", (8, 9)),
    ("L4", (8, 9)),
    ("A100", (8, 0)),
    ("A800", (8, 0)),
    ("A30", (8, 0)),
    ("A40", (8, 6)),
    ("A16", (8, 6)),
    ("A10", (8, 6)),
    ("A10G", (8, 6)),
    ("A6000", (8, 6)),
    ("A5000", (8, 6)),
    ("A4000", (8, 6)),
    ("RTX PRO 6000", (12, 0)),
    ("RTX 6000 ADA", (8, 9)),
    *((f"RTX {number}", (12, 0)) for number in (5090, 5080, 5070, 5060)),
    *((f"RTX {number}", (8, 9)) for number in (4090, 4080, 4070, 4060)),
    *((f"RTX {number}", (8, 6)) for number in (3090, 3080, 3070, 3060)),
    *((f"RTX {number}", (7, 5)) for number in (2080, 2070, 2060)),
    ("T4", (7, 5)),
    ("V100", (7, 0)),
    ("P100", (6, 0)),
)


def compute_capability_of(model: str, reported: object) -> Version:
    """What counts: the reported one, of a known model at most that model's; UNKNOWN where nothing is reported."""
    return min(version_of(reported), _known_capability(model) or (99, 99))


def version_of(reported: object) -> Version:
    """`12.4` as (12, 4); UNKNOWN for anything else, which no job that asks for a version takes."""
    match = _VERSION.fullmatch(reported) if isinstance(reported, str) else None
    return (int(match.group(1)), int(match.group(2))) if match else UNKNOWN


def format_version(version: Version) -> str:
    """`12.4`; empty for UNKNOWN."""
    return f"{version[0]}.{version[1]}" if version != UNKNOWN else ""


@lru_cache(maxsize=10_000)
def _known_capability(model: str) -> Version | None:
    words = set(re.findall(r"[A-Z0-9]+", model.upper()))
    return next((version for name, version in CAPABILITIES if set(name.split()) <= words), None)
