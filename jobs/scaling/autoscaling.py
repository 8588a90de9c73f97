"""How many replicas an endpoint should have, decided from observations alone: no clock, no database.

It grows at once: for the load there is, a queue that waits too long, declared hours, what is foreseen. It shrinks when
the load of a whole window would have been served by fewer without a queue, so that a load that does not change makes no
replica come and go; to none when no request has come for long enough. Which replicas are started and drained for it:
`step_plan`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, Literal
from uuid import UUID

from jobs.scaling.forecast import Forecast, Minute
from jobs.spec.kinds.serve import DAYS, Hours, Scale, ServeSection

WINDOW_SECONDS_MIN: Final = 180  # what was needed in it is kept
WINDOW_SECONDS_MAX: Final = 1800
WINDOW_STARTS: Final = 3.0  # a window is so many cold starts long
SWINGS_MINUTES: Final = 120  # in these, each time that it shrank and had to grow again doubles the window
SWINGS_MAX: Final = 2
CLEAR_SECONDS: Final = 30.0  # in which a queue should be worked off once there are replicas
CLEAR_STARTS: Final = 0.33  # or in so many cold starts, where these are long
SERVED_MIN: Final = 10  # answers, from which the time of one is estimated
SERVICE_MINUTES: Final = 10
SETTLED_SECONDS: Final = 10.0  # after which a ready replica has taken its part of the queue
AHEAD_SECONDS: Final = 30.0  # hours are prepared by a cold start and this
FORESEEN_LOAD_MIN: Final = 0.5  # requests at once; below it no replica of an unused endpoint is kept awake
CONFIDENCE_MIN: Final = 0.65  # below it, days differ so much that a forecast would only keep spare replicas
MINUTE_SECONDS: Final = 60
WHY_CHARACTERS_MAX: Final = 200

State = Literal["starting", "ready", "draining"]


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica that is not gone."""

    id: UUID
    state: State
    seconds: float = 0.0  # in this state
    was_ready: bool = False  # it starts again: no gateway reaches it any more
    is_on_demand: bool = False
    is_failing: bool = False  # fails, or is slow against its peers: see spreading.outliers


@dataclass(frozen=True, slots=True)
class EndpointView:
    """What all gateways report of an endpoint now, in sum."""

    replicas: Sequence[ReplicaView]
    in_flight: int = 0
    queued: int = 0
    queue_seconds: float = 0.0  # the longest wait for a replica since the last tick
    is_wanted: bool = False  # somebody waits, and no replica is ready
    idle_seconds: float | None = None  # since the last request; None: there never was one
    cold_start_seconds: float = 60.0  # an upper guess: see cold_start


@dataclass(frozen=True, slots=True)
class History:
    """The last minutes (at least `minutes_needed` of them, and the present one), and what is foreseen."""

    minutes: Sequence[Minute] = ()
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """How many replicas there should be. `load` and `need` go into the present minute (`forecast.record`)."""

    desired: int
    why: str  # one sentence for people
    load: float = 0.0  # requests at once that want to be served
    need: int = 0  # replicas for it, and for what is foreseen: what was started for that is kept for a window, too


def minutes_needed() -> int:
    """How many of the last minutes `decide` looks at."""
    return SWINGS_MINUTES


def decide(now: datetime, policy: ServeSection, view: EndpointView, history: History) -> Decision:
    """The replicas that the load takes, that the declared hours and bounds require, and that a forecast expects."""
    scale, least, most = policy.scale, policy.replicas.min, policy.replicas.max
    load = offered_load(now, scale, view, history.minutes)
    is_asked = view.in_flight + view.queued > 0 or view.is_wanted
    is_idle = not is_asked and (view.idle_seconds is None or view.idle_seconds >= scale.idle_seconds)
    needed, foreseen = _needed(scale, view, load), _foreseen(scale, history.forecast, is_idle=is_idle)
    floor = scheduled(now, scale.schedule, ahead_seconds=view.cold_start_seconds + AHEAD_SECONDS)
    reasons: list[tuple[int, str]] = [(needed, _load_words(scale, view, needed))]
    if not (is_idle and least == 0):
        reasons.append((kept(now, view, history.minutes), "the last minutes needed as many"))
        reasons.append((1, "somebody asks" if is_asked else "somebody asked not long ago"))
    if history.forecast is not None:
        words = f"{history.forecast.upper:.0f} requests at once are foreseen in {history.forecast.horizon_minutes} min"
        reasons.append((foreseen, words))
    reasons += [(floor, "the declared hours ask for them"), (least, "there are never fewer")]
    wanted, why = max(reasons, key=lambda reason: reason[0])  # the first of equals
    if wanted == 0:
        why = "nobody asks"
    elif wanted > most:
        why = f"never more, though {wanted} are wanted: {why}"
    desired = min(wanted, most)
    noun = "replica" if desired == 1 else "replicas"
    return Decision(desired, f"{desired} {noun}: {why}."[:WHY_CHARACTERS_MAX], load, max(needed, foreseen))


def offered_load(now: datetime, scale: Scale, view: EndpointView, minutes: Sequence[Minute]) -> float:
    """Requests at once that want to be served.

    A queue that is shorter than it may be is no load. One that is longer counts by what it takes to work it off in
    `CLEAR_SECONDS`, or a part of a long cold start, on top of what arrives: counted whole, everything that gathered
    while replicas start would be taken for a load that lasts, and answered by replicas that come when it is gone.
    """
    if view.queued == 0 or not (view.queue_seconds >= scale.queue_seconds or view.is_wanted):
        return float(view.in_flight)
    service = service_seconds(now, minutes)
    if service is None:
        return float(view.in_flight + view.queued)
    arriving = _arrivals_per_second(now, minutes) * service
    clear_seconds = max(CLEAR_SECONDS, CLEAR_STARTS * view.cold_start_seconds)
    return max(view.in_flight, arriving) + view.queued * min(1.0, service / clear_seconds)


def service_seconds(now: datetime, minutes: Sequence[Minute]) -> float | None:
    """How long a replica works on a request, by Little's law over the last whole minutes; None: too few answers."""
    present = _minute(now)
    recent = [row for row in minutes if present - SERVICE_MINUTES <= row.minute < present]
    served = sum(row.served for row in recent)
    if served < SERVED_MIN:
        return None
    return sum(row.in_flight for row in recent) * MINUTE_SECONDS / served


def scheduled(now: datetime, schedule: Sequence[Hours], *, ahead_seconds: float) -> int:
    """The most that the declared hours require at any moment from `now` until so far ahead."""
    return max((hours.min for hours in schedule if _seconds_until(now, hours) <= ahead_seconds), default=0)


def kept(now: datetime, view: EndpointView, minutes: Sequence[Minute]) -> int:
    """The most replicas that any tick of the window needed: fewer would have made a queue in it."""
    first = _minute(now) - math.ceil(window_seconds(now, view, minutes) / MINUTE_SECONDS)
    return max((row.need_max for row in minutes if row.minute >= first), default=0)


def window_seconds(now: datetime, view: EndpointView, minutes: Sequence[Minute]) -> float:
    """How long a need is kept: by how long it takes to get a replica back, and longer where that was regretted."""
    first = _minute(now) - SWINGS_MINUTES
    counts = [row.desired for row in sorted(minutes, key=lambda row: row.minute) if row.minute >= first]
    swings, has_shrunk = 0, False
    for before, after in pairwise(counts):
        if after < before:
            has_shrunk = True
        elif after > before and has_shrunk:
            swings, has_shrunk = swings + 1, False
    seconds = max(WINDOW_STARTS * view.cold_start_seconds, WINDOW_SECONDS_MIN) * (1 << min(swings, SWINGS_MAX))
    return min(seconds, WINDOW_SECONDS_MAX)


def _needed(scale: Scale, view: EndpointView, load: float) -> int:
    """Replicas for the load alone; one more than are ready where requests wait too long for these all the same."""
    need = math.ceil(load / scale.in_flight)
    if view.queued and view.queue_seconds >= scale.queue_seconds:
        ready = [replica.seconds for replica in view.replicas if replica.state == "ready"]
        need = max(need, len(ready) + (not ready or min(ready) >= SETTLED_SECONDS))
    return max(need, int(view.is_wanted or view.queued > 0 or view.in_flight > 0))


def _foreseen(scale: Scale, forecast: Forecast | None, *, is_idle: bool) -> int:
    """Replicas for what is foreseen: nothing is woken, or kept awake, for what is hardly there or hardly known."""
    if not scale.forecast or forecast is None or forecast.confidence < CONFIDENCE_MIN:
        return 0
    if is_idle and forecast.expected < FORESEEN_LOAD_MIN:
        return 0
    return math.ceil(forecast.upper / scale.in_flight)


def _arrivals_per_second(now: datetime, minutes: Sequence[Minute]) -> float:
    """Over this minute so far and the one before."""
    present = _minute(now)
    known = [row for row in minutes if present - 1 <= row.minute <= present]
    first = min((row.minute for row in known), default=present)
    return sum(row.arrived for row in known) / max(now.timestamp() - first * MINUTE_SECONDS, 1.0)


def _seconds_until(now: datetime, hours: Hours) -> float:
    """Until these hours begin; 0 within them. Those over midnight are of the day on which they begin."""
    begins, ends = (int(part[:2]) * 60 + int(part[3:]) for part in hours.at.split("-"))
    lasts = (ends - begins) % 1440 or 1440  # from an hour to itself is a whole day
    now = now.astimezone(UTC)
    passed = now.hour * 3600 + now.minute * 60 + now.second + now.microsecond / 1e6
    nearest = math.inf
    for day in range(-1, len(DAYS) + 1):
        if DAYS[(now.weekday() + day) % len(DAYS)] in hours.days:
            until = day * 86_400 + begins * 60 - passed
            if until + lasts * 60 > 0:
                nearest = min(nearest, max(until, 0.0))
    return nearest


def _load_words(scale: Scale, view: EndpointView, need: int) -> str:
    if view.queued and view.queue_seconds >= scale.queue_seconds:
        return f"requests wait {view.queue_seconds:.0f} s for one, {view.in_flight + view.queued} at once"
    return f"{view.in_flight + view.queued} requests at once, {scale.in_flight} for each" if need else "nobody asks"


def _minute(now: datetime) -> int:
    return int(now.timestamp()) // MINUTE_SECONDS
