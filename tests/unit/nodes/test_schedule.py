"""How long a node is there: hours, windows, midnight, and days that are an hour longer."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.nodes.offering.schedule import open_seconds
from provider_agent.node.hours import parse_hours
from provider_agent.protocol import Schedule

HOUR = 3600.0


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def there(hours: str, timezone: str = "UTC", **more: object) -> Schedule:
    return Schedule.model_validate({"timezone": timezone, "hours": parse_hours(hours), **more})


@pytest.mark.parametrize(
    ("hours", "now", "expected"),
    [
        ("mon-fri 18:00-08:00", "2026-11-20T18:00", 14.0),  # a Friday
        ("mon-fri 18:00-08:00", "2026-11-21T07:30", 0.5),
        ("mon-fri 18:00-08:00", "2026-11-21T08:00", 0.0),
        ("mon-fri 18:00-08:00; sat,sun 00:00-24:00", "2026-11-20T18:00", 54.0),  # until Monday begins
        ("mon-fri 18:00-08:00; sat,sun 00:00-24:00; mon 00:00-08:00", "2026-11-20T18:00", 62.0),
        ("mon-sun 00:00-24:00", "2026-11-20T18:00", math.inf),
        ("always", "2026-11-20T18:00", math.inf),
        ("sun 00:00-24:00", "2026-11-20T18:00", 0.0),
    ],
)
def test_hours_last_until_they_end(hours: str, now: str, expected: float) -> None:
    assert open_seconds(there(hours), at(now)) == expected * HOUR


def test_hours_are_the_nodes_own_also_when_its_clocks_go_back() -> None:
    night = there("sat 20:00-08:00", "Europe/Berlin")
    assert open_seconds(night, at("2026-11-21T19:00")) == 12 * HOUR
    assert open_seconds(night, at("2026-10-24T18:00")) == 13 * HOUR  # the night of the longer day


def test_a_window_closes_before_the_hours_do_and_one_that_is_over_does_not() -> None:
    away = [
        {"begins_at": "2026-11-20T10:00Z", "ends_at": "2026-11-20T12:00Z"},
        {"begins_at": "2026-11-20T22:00Z", "ends_at": "2026-11-20T23:00Z"},
    ]
    schedule = there("always", away=away)
    assert open_seconds(schedule, at("2026-11-20T09:30")) == 0.5 * HOUR
    assert open_seconds(schedule, at("2026-11-20T11:00")) == 0
    assert open_seconds(schedule, at("2026-11-20T12:00")) == 10 * HOUR
    assert open_seconds(schedule, at("2026-11-20T23:00")) == math.inf


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1438), st.integers(1, 1440)), max_size=8),
    st.integers(0, 7 * 24 * 60 - 1),
)
def test_a_node_is_open_for_exactly_the_minutes_that_follow(spans: list[tuple[int, int, int]], minute: int) -> None:
    hours = [{"day": day, "begins": b, "ends": e} for day, b, e in spans if b < e]
    if not hours:
        return
    schedule = Schedule.model_validate({"hours": hours})
    open_minutes = {h["day"] * 1440 + m for h in hours for m in range(h["begins"], h["ends"])}
    expected = 0
    while (minute + expected) % (7 * 1440) in open_minutes and expected < 7 * 1440:
        expected += 1
    monday = at("2026-11-16T00:00")
    found = open_seconds(schedule, datetime.fromtimestamp(monday.timestamp() + minute * 60, UTC))
    assert found == (math.inf if expected == 7 * 1440 else expected * 60)
