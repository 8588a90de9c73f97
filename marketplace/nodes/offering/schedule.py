"""When a node is there: weekly hours in its own time zone, and windows in which it is not, declared in advance."""

from __future__ import annotations

import math
from datetime import datetime, time, timedelta
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.nodes.errors import BadFacts
from marketplace.nodes.models import Node
from marketplace.nodes.states import NodeState
from provider_agent.protocol import MINUTES_PER_DAY, Schedule

DAYS_AHEAD: Final = 8  # hours that go on for so long never close


def declare(node: Node, wanted: Schedule) -> Schedule:
    """From now on the node is there at these times; windows that are over are forgotten. Raises BadFacts."""
    try:
        ZoneInfo(wanted.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadFacts(problem=f"the time zone {wanted.timezone!r}, which is not known here") from None
    now = clock.now()
    kept = wanted.model_copy(update={"away": [away for away in wanted.away if away.ends_at > now]})
    node.schedule = kept.model_dump(mode="json") if kept.hours or kept.away else {}
    Node.objects.filter(pk=node.pk).update(schedule=node.schedule)
    return kept


def of(node: Node) -> Schedule:
    """What the node declared; always, unless it did."""
    return parse(node.schedule)


def parse(kept: Any) -> Schedule:
    """From the column."""
    return Schedule.model_validate(kept)


def open_seconds(schedule: Schedule, now: datetime) -> float:
    """How long the node is there from `now` on: 0 when it is closed, infinity when it never closes."""
    closes_at = _closes_at(schedule, now)
    for away in schedule.away:
        if away.ends_at > now:
            begins_at = max(away.begins_at, now)
            closes_at = begins_at if closes_at is None else min(closes_at, begins_at)
    return math.inf if closes_at is None else max((closes_at - now).total_seconds(), 0.0)


def closed_nodes() -> list[UUID]:
    """Nodes that are online, and closed by their schedule. Hours are a time zone's, so no query can find them."""
    now = clock.now()
    declared = Node.objects.filter(state=NodeState.ONLINE).exclude(schedule={}).values_list("pk", "schedule")
    return [pk for pk, kept in declared if not _is_open(pk, kept, now)]


def _is_open(node_id: UUID, kept: Any, now: datetime) -> bool:
    with log_failures("A node's hours cannot be read; it is taken to be closed.", node_id=str(node_id)):
        return open_seconds(parse(kept), now) > 0
    return False


def _closes_at(schedule: Schedule, now: datetime) -> datetime | None:
    """By its hours alone; now itself when they do not include it. Days are as long as the time zone has them."""
    if not schedule.hours:
        return None
    zone = ZoneInfo(schedule.timezone)
    moment = now.astimezone(zone)
    for _ in range(DAYS_AHEAD):
        end = _open_until(schedule, moment)
        if end is None:
            return moment
        if end < MINUTES_PER_DAY:
            return datetime.combine(moment.date(), time(end // 60, end % 60), zone)
        moment = datetime.combine(moment.date() + timedelta(days=1), time(0), zone)
    return None


def _open_until(schedule: Schedule, moment: datetime) -> int | None:
    """The minute of this day until which the hours around `moment` last; None when it is outside of them."""
    spans = sorted((span.begins, span.ends) for span in schedule.hours if span.day == moment.weekday())
    minute = moment.hour * 60 + moment.minute
    until: int | None = None
    for begins, ends in spans:
        if begins <= (minute if until is None else until) < ends:
            until = ends
    return until
