"""A training's own words, within what the server knows, beside the planner's figures. No database.

What is measured comes from the program on the provider's node, and its model's shape from the customer's file: both are
strangers. So seconds are bounded by the time that the server saw the lease run, and from below by what the devices were
measured to multiply; bytes by the device's memory, and from below by the weights that must be there. What lies outside
is not kept as a figure but named.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runtimes.plan.advice import process_bytes
from runtimes.plan.memory import Memory, Place, reckon_memory
from runtimes.plan.reading import method_of, read_training
from runtimes.plan.step_time import Speed, flops_per_step, reckon_step
from runtimes.shapes.families import keys_that_count
from runtimes.shapes.shape import ModelMistake

STEPS_MIN: Final = 10  # of an attempt: the first ones load kernels and find their memory
OBSERVED_MARGIN: Final = 1.05  # the server sees a lease's ends some seconds late
OBSERVED_SECONDS: Final = 30.0
FASTER_MAX: Final = 1.5  # than its own measured matrix products no device computes: a benchmark errs by less
WEIGHTS_SHARE_MIN: Final = 0.5
MEMORY_MARGIN: Final = 1.08  # drivers report memory in units that differ by so much
SECONDS_MAX: Final = 86_400.0  # of a step


@dataclass(frozen=True)
class Reported:
    """What the program said: `seconds` of each point of the curve, in the order of its steps."""

    model_config: Mapping[str, Any]
    seconds: Sequence[float]
    peak_bytes: float | None
    steps: int  # of the attempt


@dataclass(frozen=True)
class Known:
    """What the server knows of the same attempt."""

    settings: Mapping[str, Any]  # the runtime's config.json, as the job file has it
    is_shipped: bool
    place: Place
    speed: Speed
    device_bytes: int
    observed_seconds: float


@dataclass(frozen=True)
class Compared:
    """Bytes and seconds of a step; a pair is None where what was reported cannot be, which `why` says."""

    family: str
    parameters: int
    model_digest: str  # SHA-256 of what decides the model's shape
    method: str
    strategy: str
    peak: tuple[int, int] | None  # planned, measured
    seconds: tuple[float, float] | None
    why: str = ""


def compare(reported: Reported, known: Known) -> Compared:
    """Both sides of a training. Raises ModelMistake for a model or settings that cannot be planned."""
    keys = keys_that_count(reported.model_config)
    shape, config = read_training(known.settings, keys, is_shipped=known.is_shipped, has_weights=True)
    planned = reckon_memory(shape, config, known.place)
    step = reckon_step(shape, config, known.place, known.speed)
    fastest = flops_per_step(shape, config) / (known.speed.flops * known.place.ranks * FASTER_MAX)
    seconds, why_seconds = _seconds(reported, known, fastest)
    peak, why_peak = _peak(reported, known, planned)
    # Of a processor the process is measured, with its libraries.
    planned_peak = planned.peak if known.place.is_gpu else process_bytes(planned, known.place)
    return Compared(
        family=shape.family,
        parameters=shape.parameters,
        model_digest=hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest(),
        method=method_of(config),
        strategy=config.strategy,
        peak=None if peak is None else (planned_peak, peak),
        seconds=None if seconds is None else (step.seconds, seconds),
        why="; ".join(filter(None, (why_seconds, why_peak))),
    )


def _seconds(reported: Reported, known: Known, fastest: float) -> tuple[float | None, str]:
    if reported.steps < STEPS_MIN or not reported.seconds:
        return None, f"fewer than {STEPS_MIN} steps"
    found = list(reported.seconds[1:] if len(reported.seconds) > 2 else reported.seconds)
    seconds = statistics.median(found)
    if not 0 < seconds <= SECONDS_MAX:
        return None, "seconds of a step that cannot be"
    if seconds * reported.steps > known.observed_seconds * OBSERVED_MARGIN + OBSERVED_SECONDS:
        return None, "more seconds than the lease was seen to run"
    if seconds < fastest:
        return None, "faster than its devices were measured to be"
    return seconds, ""


def _peak(reported: Reported, known: Known, planned: Memory) -> tuple[int | None, str]:
    if reported.peak_bytes is None:
        return None, ""
    if not planned.weights * WEIGHTS_SHARE_MIN <= reported.peak_bytes <= known.device_bytes * MEMORY_MARGIN:
        return None, "memory that the device does not have, or the weights do not fit into"
    return int(reported.peak_bytes), ""


def read_started(data: bytes) -> Mapping[str, Any] | None:
    """`model_config` of the first `started` event in these bytes of an event stream; None where there is none."""
    for line in data.splitlines():
        if b'"started"' not in line:
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and event.get("event") == "started":
            found = event.get("model_config")
            return found if isinstance(found, dict) else None
    return None


__all__ = ["Compared", "Known", "ModelMistake", "Reported", "compare", "read_started"]
