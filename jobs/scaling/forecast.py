"""How many requests at once an endpoint will have when a replica that is started now is ready.

Two guesses, each an upper one, the larger counts:

    season   what the same minute of the days before had, newer days and the same day of the week weighing more,
             times what the last minutes had over what they had on those days
    trend    a straight line through the last minutes, where it rises beyond doubt

    upper = mean + z x sqrt(variance between days + mean)

The second term below the root is that of a Poisson stream: also a load that is known has its chance crowds. With too
little history there is no guess, so that an endpoint is not sized by an accident.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

MINUTES_PER_DAY: Final = 1440
DAYS_PER_WEEK: Final = 7
DAYS_MAX: Final = 14  # of history that are looked at
DAYS_MIN: Final = 2  # of history without which there is no season
AROUND_MINUTES: Final = 5  # a season's minute is the mean of those around it
RECENT_MINUTES: Final = 10  # a trend's, and a level's
TREND_MINUTES_MIN: Final = 5
HORIZON_MINUTES_MAX: Final = 60
DAY_KEEPS: Final = 0.85  # weight of a day over that of the day after it
OTHER_KIND_OF_DAY: Final = 0.25  # weight of a weekend for a working day, and vice versa
LEVEL_MIN, LEVEL_MAX = 0.5, 2.0  # of today over the days before, at most believed
LEVEL_LOAD_MIN: Final = 1.0  # requests at once below which today's level carries no information
TREND_SURE: Final = 3.0  # standard errors by which a line must rise
TREND_HORIZON_MAX: Final = 5  # minutes that a line is drawn on, at most
UPPER_Z: Final = 1.2816  # nine times in ten it is not more
CONFIDENT_DAYS: Final = 2.0  # days of the same kind that make about two thirds of the confidence


@dataclass(frozen=True, slots=True)
class Minute:
    """What an endpoint had in one minute. Sums over the minute's ticks, so that each tick adds to one row."""

    minute: int  # Unix time / 60
    ticks: int = 0
    load_sum: float = 0.0  # requests at once that wanted to be served
    in_flight_sum: float = 0.0  # requests at once that were
    arrived: int = 0
    served: int = 0
    need_max: int = 0  # replicas that a tick's load took
    desired: int = 0  # by the last tick

    @property
    def load(self) -> float:
        """Requests at once, on average."""
        return self.load_sum / self.ticks if self.ticks else 0.0

    @property
    def in_flight(self) -> float:
        """Requests at once that a replica had, on average."""
        return self.in_flight_sum / self.ticks if self.ticks else 0.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """Requests at once at `horizon_minutes` from now: what is expected, and what nine of ten such times stay below."""

    expected: float
    upper: float
    horizon_minutes: int
    confidence: float  # 0 to 1: how much history of this hour there is, and how similar its days were
    why: str  # "season" or "trend"


def record(
    minute: Minute, *, load: float, in_flight: int, arrived: int, served: int, need: int, desired: int
) -> Minute:
    """The minute with one more tick; `arrived` and `served` are what came since the tick before."""
    return replace(
        minute,
        ticks=minute.ticks + 1,
        load_sum=minute.load_sum + load,
        in_flight_sum=minute.in_flight_sum + in_flight,
        arrived=minute.arrived + arrived,
        served=minute.served + served,
        need_max=max(minute.need_max, need),
        desired=desired,
    )


def horizon_of(seconds: float) -> int:
    """Whole minutes ahead, at least one."""
    return min(max(math.ceil(seconds / 60), 1), HORIZON_MINUTES_MAX)


def ranges(now_minute: int, horizon_minutes: int) -> list[tuple[int, int]]:
    """The minutes, first and last, that `predict` looks at: no others need be loaded. Newest first."""
    before, after = RECENT_MINUTES + AROUND_MINUTES, horizon_minutes + AROUND_MINUTES
    past = [now_minute - day * MINUTES_PER_DAY for day in range(1, DAYS_MAX + 1)]
    return [(now_minute - before, now_minute), *((at - before, at + after) for at in past)]


def predict(now_minute: int, horizon_minutes: int, history: Iterable[Minute]) -> Forecast | None:
    """The larger of what the season and the trend foresee; None where neither has enough history."""
    minutes = {row.minute: row for row in history if row.ticks}
    found = [_season(now_minute, horizon_minutes, minutes), _trend(now_minute, horizon_minutes, minutes)]
    return max((each for each in found if each is not None), key=lambda each: each.upper, default=None)


def _season(now: int, horizon: int, minutes: Mapping[int, Minute]) -> Forecast | None:
    target = now + horizon
    days = [day for day in range(1, DAYS_MAX + 1) if _around(minutes, target - day * MINUTES_PER_DAY) is not None]
    if len(days) < DAYS_MIN:
        return None
    loads = [_around(minutes, target - day * MINUTES_PER_DAY) or 0.0 for day in days]
    weights = [_weight(target, day) for day in days]
    total = sum(weights)
    mean = sum(w * x for w, x in zip(weights, loads, strict=True)) / total
    variance = sum(w * (x - mean) ** 2 for w, x in zip(weights, loads, strict=True)) / total
    days_worth = total**2 / sum(w * w for w in weights)
    level = _level(now, days, minutes)
    expected, variance = mean * level, variance * level**2 * (1 + 1 / days_worth)
    spread = math.sqrt(variance)
    similarity = 1 / (1 + spread / (expected + 1.0))
    return Forecast(
        expected=expected,
        upper=expected + UPPER_Z * math.sqrt(variance + expected),
        horizon_minutes=horizon,
        confidence=similarity * (1 - math.exp(-days_worth / CONFIDENT_DAYS)),
        why="season",
    )


def _weight(target: int, day: int) -> float:
    """Of the day so many days before `target`."""
    same_kind = _is_weekend(target) == _is_weekend(target - day * MINUTES_PER_DAY)
    return DAY_KEEPS ** (day - 1) * (1.0 if same_kind else OTHER_KIND_OF_DAY)


def _is_weekend(minute: int) -> bool:
    return (minute // MINUTES_PER_DAY + 3) % DAYS_PER_WEEK >= 5  # Unix time begins on a Thursday


def _around(minutes: Mapping[int, Minute], at: int) -> float | None:
    """The mean load of the minutes around `at`; None where most of them are unknown."""
    known = [minutes[m].load for m in range(at - AROUND_MINUTES, at + AROUND_MINUTES + 1) if m in minutes]
    return sum(known) / len(known) if len(known) > AROUND_MINUTES else None


def _level(now: int, days: Sequence[int], minutes: Mapping[int, Minute]) -> float:
    """The last minutes over the same ones of the days before, within what is believed."""
    recent = [minutes[m].load for m in range(now - RECENT_MINUTES, now) if m in minutes]
    if len(recent) < TREND_MINUTES_MIN:
        return 1.0
    past = then = 0.0
    for day in days:
        at = now - day * MINUTES_PER_DAY
        known = [minutes[m].load for m in range(at - RECENT_MINUTES, at) if m in minutes]
        if known:
            weight = _weight(now, day)
            past, then = past + weight * sum(known) / len(known), then + weight
    usual, today = (past / then if then else 0.0), sum(recent) / len(recent)
    if max(usual, today) < LEVEL_LOAD_MIN:
        return 1.0
    return min(max((today + 1) / (usual + 1), LEVEL_MIN), LEVEL_MAX)


def _trend(now: int, horizon: int, minutes: Mapping[int, Minute]) -> Forecast | None:
    """By least squares through the last whole minutes, where the line rises by more than chance."""
    points = [(m - now, minutes[m].load) for m in range(now - RECENT_MINUTES, now) if m in minutes]
    count = len(points)
    if count < TREND_MINUTES_MIN:
        return None
    x_mean, y_mean = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    x_spread = sum((x - x_mean) ** 2 for x, _ in points)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in points) / x_spread
    rest = sum((y - y_mean - slope * (x - x_mean)) ** 2 for x, y in points) / (count - 2)
    # A minute's mean is itself uncertain: of a Poisson stream by about its root. Without that a line of noise is sure.
    error = math.sqrt(max(rest, y_mean / 4) / x_spread)
    if slope <= 0 or slope < TREND_SURE * error:
        return None
    present = max(y_mean - slope * x_mean, 0.0)
    expected = present + slope * min(horizon, TREND_HORIZON_MAX)
    return Forecast(
        expected=expected,
        upper=expected + UPPER_Z * math.sqrt(expected),
        horizon_minutes=horizon,
        confidence=1 - math.exp(-slope / error / TREND_SURE) if error else 1.0,
        why="trend",
    )
