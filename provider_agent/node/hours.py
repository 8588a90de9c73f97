"""Weekly hours as people write them: "mon-fri 18:00-08:00; sat,sun 00:00-24:00"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import ValidationError

from provider_agent.errors import BadConfig
from provider_agent.protocol import MINUTES_PER_DAY, Away, Schedule, WeeklyHours

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
ALWAYS = "always"
CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
EXAMPLE = "mon-fri 18:00-08:00; sat,sun 00:00-24:00"


def changed(
    known: Schedule, *, hours: str | None, timezone: str | None, away: Sequence[str], no_away: bool
) -> Schedule:
    """The known settings with the requested ones in their place; raises BadConfig."""
    windows = [] if no_away else list(known.away)
    windows += [window for window in map(parse_away, away) if window not in windows]
    try:
        return Schedule(
            timezone=timezone or known.timezone,
            hours=known.hours if hours is None else parse_hours(hours),
            away=sorted(windows, key=lambda window: window.begins_at),
        )
    except ValidationError as error:
        raise BadConfig("; ".join(f"{each['loc'][0]}: {each['msg']}" for each in error.errors())) from error


def parse_hours(text: str) -> list[WeeklyHours]:
    """Spans of days; hours past midnight go on in the next day. Raises BadConfig."""
    if text.strip().lower() == ALWAYS:
        return []
    found = []
    for part in filter(None, (each.strip().lower() for each in text.split(";"))):
        days, _, span = part.partition(" ")
        begins, ends = _parse_span(span.strip(), part)
        for day in _parse_days(days, part):
            if begins < ends:
                found.append(WeeklyHours(day=day, begins=begins, ends=ends))
                continue
            found.append(WeeklyHours(day=day, begins=begins, ends=MINUTES_PER_DAY))
            if ends:
                found.append(WeeklyHours(day=(day + 1) % len(DAYS), begins=0, ends=ends))
    if not found:
        raise BadConfig(f'--hours wants "{EXAMPLE}" or "{ALWAYS}", not {text!r}.')
    return sorted(found, key=lambda hours: (hours.day, hours.begins))


def parse_away(text: str) -> Away:
    """BEGIN/END as ISO 8601 with a time zone; raises BadConfig."""
    begin, _, end = text.partition("/")
    try:
        return Away(begins_at=datetime.fromisoformat(begin), ends_at=datetime.fromisoformat(end))
    except ValueError as error:
        example = "2026-12-01T08:00Z/2026-12-01T12:00Z"
        raise BadConfig(f"--away wants BEGIN/END with their time zone, as {example}, not {text!r}.") from error


def lines(schedule: Schedule) -> list[str]:
    """For people."""
    shown = [f"{DAYS[span.day]} {_clock(span.begins)}-{_clock(span.ends)}" for span in schedule.hours]
    there = f"there: {', '.join(shown)} ({schedule.timezone})" if shown else "there: always"
    windows = [f"away: {_moment(window.begins_at)} to {_moment(window.ends_at)} UTC" for window in schedule.away]
    return [there, *windows]


def _parse_days(text: str, part: str) -> list[int]:
    found: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        if first not in DAYS or (last and last not in DAYS):
            raise BadConfig(f"{part!r}: days are {', '.join(DAYS)}, as mon-fri or sat,sun.")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found += range(begin, end + 1) if begin <= end else [*range(begin, len(DAYS)), *range(end + 1)]
    return found


def _parse_span(text: str, part: str) -> tuple[int, int]:
    begin, _, end = text.partition("-")
    minutes = []
    for clock in (begin.strip(), end.strip()):
        match = CLOCK.fullmatch(clock)
        minute = int(match[1]) * 60 + int(match[2]) if match else -1
        if match is None or int(match[2]) > 59 or minute > MINUTES_PER_DAY:
            raise BadConfig(f"{part!r}: a span is like 18:00-08:00 or 00:00-24:00.")
        minutes.append(minute)
    if minutes[0] == minutes[1] or minutes[0] == MINUTES_PER_DAY:
        raise BadConfig(f"{part!r}: a span must have a length; the whole day is 00:00-24:00.")
    return minutes[0], minutes[1]


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
