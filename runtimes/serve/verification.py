"""Whether a recomputed answer matches its commitment: the bounds for each precision, and the verdict.

`benchmarks/inference_checks.py` measures how far honest replicas of one small model are from one another (batches,
thread counts, kernels; a prefill against a decode), without regard to dishonest ones. In float32 they differ by nothing
that bfloat16 shows; the bounds allow for the rounding of other hardware, whose relative error of 1e-5 moves one value
in 300 by one place. In bfloat16 the largest difference was 0.4 places, for four layers on one kind of processor; models
of 32 layers on different GPUs differ more, and the bounds are those with which TOPLOC accused no honest replica.
They miss what narrower bounds find: the benchmark lists these cases under `shipped`.

An answer is measured by its worst chunk and its worst token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from runtimes.serve.commitments import ChunkFinding

Verdict = Literal["match", "mismatch", "unclear"]


@dataclass(frozen=True)
class Bounds:
    """The farthest that an honest answer may be from what is computed again."""

    missed_share: float  # of a chunk's values
    error_mean: float  # units of bfloat16's last place
    error_median: float
    gap: float  # probability by which a token may be missed


BOUNDS: Final = {
    "float32": Bounds(missed_share=0.05, error_mean=0.05, error_median=0.0, gap=0.01),
    "bfloat16": Bounds(missed_share=0.30, error_mean=10.0, error_median=8.0, gap=0.10),
    "float16": Bounds(missed_share=0.10, error_mean=2.0, error_median=2.0, gap=0.05),
}


@dataclass(frozen=True)
class Measured:
    """One answer's distances, its worst each."""

    missed_share: float
    error_mean: float
    error_median: float
    gap: float


def measure(chunks: Sequence[ChunkFinding], gaps: Sequence[float]) -> Measured:
    """The worst of each."""
    return Measured(
        missed_share=max((chunk.missed / chunk.values for chunk in chunks), default=0.0),
        error_mean=max((chunk.error_mean for chunk in chunks), default=0.0),
        error_median=max((chunk.error_median for chunk in chunks), default=0.0),
        gap=max(gaps, default=0.0),
    )


def find_faults(chunks: Sequence[ChunkFinding], gaps: Sequence[float], bounds: Bounds) -> list[str]:
    """What is beyond the bounds: `prompt` and `decoding` by the activations, `drawing` by the tokens."""
    faults = []
    if chunks and _is_far(chunks[0], bounds):
        faults.append("prompt")
    if any(_is_far(chunk, bounds) for chunk in chunks[1:]):
        faults.append("decoding")
    if any(gap > bounds.gap for gap in gaps):
        faults.append("drawing")
    return faults


def _is_far(chunk: ChunkFinding, bounds: Bounds) -> bool:
    return (
        chunk.missed > bounds.missed_share * chunk.values
        or chunk.error_mean > bounds.error_mean
        or chunk.error_median > bounds.error_median
    )
