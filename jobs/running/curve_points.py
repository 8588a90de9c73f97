"""The arithmetic of a job's curve: what an event says, and points that hold the steps of a bucket. No database.

    read_readings   of one event: its step and the figures of its series, within their bounds
    merge_points    two points of neighbouring steps, or of the same ones, become one
    widen           points of twice the stride: half as many, and each as exact as its bucket

A program may write anything: what is no number, not finite, too large, or under a name that none can have is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from runtimes.contract import METRIC_NAME, STEP_DIGITS_MAX, EventKind

STEP_MAX: Final = 10**STEP_DIGITS_MAX - 1
VALUE_MAX: Final = 1e30  # the difference and the mean of two such are finite
DIGITS: Final = 9  # of a stored figure: a float32 comes back whole
NAMES_READ_MAX: Final = 100  # of one event's own figures; what comes after them is not looked at

# The series that the marketplace knows, by the field of the event that holds their figures.
STEP_SERIES: Final = {
    "loss": "loss",
    "tokens_per_second": "tokens_per_second",
    "learning_rate": "learning_rate",
    "gradient_norm": "gradient_norm",
    "mfu": "mfu",
    "seconds": "seconds_per_step",
    "peak_bytes": "peak_bytes",
}
EVALUATED_SERIES: Final = {"loss": "evaluation_loss"}
EVALUATED_PREFIX: Final = "evaluation_"  # of an evaluation's own figures, as a step has some of the same names
KNOWN_SERIES: Final = (*STEP_SERIES.values(), *EVALUATED_SERIES.values())
_SERIES: Final[dict[str, dict[str, str]]] = {EventKind.STEP: STEP_SERIES, EventKind.EVALUATED: EVALUATED_SERIES}


@dataclass(frozen=True)
class Figures:
    """What was reported of one series in a bucket; `newest` came last."""

    count: int
    mean: float
    lowest: float
    highest: float
    newest: float

    def as_list(self) -> list[float]:
        """As it is stored: [count, mean, lowest, highest, newest]."""
        return [self.count, *(_rounded(value) for value in (self.mean, self.lowest, self.highest, self.newest))]


@dataclass(frozen=True)
class Point:
    """The steps of one bucket that were reported, of an attempt, and the figures of each series there."""

    attempt: int
    first_step: int
    last_step: int
    series: Mapping[str, Figures]


def read_step(event: Mapping[str, Any]) -> int | None:
    """The step of an event; None where it has none that can be."""
    step = event.get("step")
    return step if isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= STEP_MAX else None


def read_readings(event: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a `step` or `evaluated` event by their series; its own are under `metrics`.

    The own figures of an evaluation are series of their own: `accuracy` is `evaluation_accuracy`.
    """
    fields = _SERIES.get(str(event.get("event")))
    if fields is None:
        return {}
    found: dict[str, float] = {}
    prefix = EVALUATED_PREFIX if event["event"] == EventKind.EVALUATED else ""
    given = event.get("metrics")
    own = given if isinstance(given, dict) else {}
    for name in list(own)[:NAMES_READ_MAX]:
        if METRIC_NAME.fullmatch(name) and (value := _finite(own[name])) is not None:
            found[prefix + name] = value
    for field, name in fields.items():
        if (value := _finite(event.get(field))) is not None:
            found[name] = value
    return found


def single_point(attempt: int, step: int, readings: Mapping[str, float]) -> Point:
    """One event as a point."""
    return Point(
        attempt, step, step, {name: Figures(1, value, value, value, value) for name, value in readings.items()}
    )


def merge_points(old: Point, new: Point) -> Point:
    """Both as one; `new` was reported later."""
    series = dict(old.series)
    for name, figures in new.series.items():
        series[name] = _merge_figures(series[name], figures) if name in series else figures
    return Point(
        max(old.attempt, new.attempt), min(old.first_step, new.first_step), max(old.last_step, new.last_step), series
    )


def widen(points: Mapping[int, Point], stride: int, points_max: int) -> tuple[dict[int, Point], int]:
    """The points by bucket, and their stride, doubled until there are at most `points_max` (1 or more) of them."""
    found = dict(points)
    while len(found) > points_max:
        stride *= 2
        wider: dict[int, Point] = {}
        for bucket in sorted(found):
            half = bucket // 2
            wider[half] = merge_points(wider[half], found[bucket]) if half in wider else found[bucket]
        found = wider
    return found, stride


def _merge_figures(old: Figures, new: Figures) -> Figures:
    count = old.count + new.count
    return replace(
        new,
        count=count,
        mean=old.mean + (new.mean - old.mean) * (new.count / count),
        lowest=min(old.lowest, new.lowest),
        highest=max(old.highest, new.highest),
    )


def _finite(value: object) -> float | None:
    """As a float within the bounds; None for what is no such number. An integer may have thousands of digits."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) <= VALUE_MAX else None


def _rounded(value: float) -> float:
    return value if value == 0 or not math.isfinite(value) else float(f"{value:.{DIGITS}g}")
