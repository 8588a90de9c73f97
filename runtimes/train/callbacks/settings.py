"""The keys of what goes on beside the steps. Standard library only, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from runtimes.checking import Check, boolean, integer, number, section

PATIENCE_MAX = 10_000
MIN_DELTA_MAX = 1000
FIRST_STEP_MAX = 10**9
PROFILED_STEPS_MAX = 20  # a trace has some MB a step


@dataclass(frozen=True)
class EarlyStop:
    """When a training ends before its last step: see early_stop.py."""

    patience: int = 3
    min_delta: float = 0.0
    export_best: bool = False


@dataclass(frozen=True)
class Profile:
    """Which steps are traced, counted from 1 where an attempt begins: see profile.py."""

    first_step: int = 10
    steps: int = 3


EARLY_STOP_CHECKS: dict[str, Check] = {
    "patience": integer(1, PATIENCE_MAX),
    "min_delta": number(0, MIN_DELTA_MAX),
    "export_best": boolean,
}
PROFILE_CHECKS: dict[str, Check] = {
    "first_step": integer(1, FIRST_STEP_MAX),
    "steps": integer(1, PROFILED_STEPS_MAX),
}
check_early_stop = section(EarlyStop, EARLY_STOP_CHECKS)
check_profile = section(Profile, PROFILE_CHECKS)
