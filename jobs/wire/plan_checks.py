"""How far plans of trainings were off."""

from __future__ import annotations

from jobs.wire.base import Wire


class PlanCheckSummary(Wire):
    """Of trainings like the one that was asked for. Errors are parts of what was planned: 0.09 is 9 % more."""

    like: str  # in what: "family, size and device", "device" or "kind of device"
    trainings: int
    votes: int  # of one's own each training has one; of all, each pair of an organisation and a provider
    memory_error: float | None  # the median, with its sign
    memory_error_size: float | None  # the median of sizes
    seconds_error: float | None
    seconds_error_size: float | None


class PlanChecks(Wire):
    """GET /api/v1/plan-checks; null where there are too few to say anything."""

    own: PlanCheckSummary | None
    all: PlanCheckSummary | None
