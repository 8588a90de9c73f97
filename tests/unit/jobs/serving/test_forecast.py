"""What an endpoint will have when a replica that starts now is ready."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.scaling.forecast import DAYS_MAX, MINUTES_PER_DAY, Minute, horizon_of, predict, ranges, record

NOW = 29_000_000 // MINUTES_PER_DAY * MINUTES_PER_DAY + 9 * 60  # a Wednesday's nine o'clock


def history(load_at, days=7, now=NOW):
    """Whole minutes until now."""
    return [Minute(at, 1, float(load_at(at))) for at in range(now - days * MINUTES_PER_DAY, now)]


def daily(at):
    """A quiet night, and a day from ten o'clock on."""
    return 20.0 if 600 <= at % MINUTES_PER_DAY < 1200 else 2.0


def test_what_came_at_this_hour_on_other_days_is_foreseen():
    now = NOW + 60 - 7  # seven minutes before ten o'clock
    found = predict(now, 15, history(daily, now=now))
    assert found.why == "season"
    assert found.expected == pytest.approx(20.0, rel=0.05)
    assert found.upper > found.expected
    quiet = predict(NOW - 180, 15, history(daily, now=NOW - 180))
    assert quiet.expected == pytest.approx(2.0, rel=0.05)


def test_little_history_is_silent():
    assert predict(NOW, 2, []) is None
    assert predict(NOW, 2, history(daily, days=1)) is None
    assert predict(NOW, 2, history(daily, days=2)) is not None


def test_more_history_and_more_alike_days_give_more_confidence():
    two, seven = predict(NOW, 2, history(daily, days=2)), predict(NOW, 2, history(daily, days=7))
    chance = random.Random(5)
    loads = {day: chance.uniform(0, 40) for day in range(NOW // MINUTES_PER_DAY - 10, NOW // MINUTES_PER_DAY + 2)}
    wild = predict(NOW, 2, history(lambda at: loads[at // MINUTES_PER_DAY]))
    assert two.confidence < seven.confidence
    assert wild.confidence < seven.confidence


def test_busier_day_than_usual_is_foreseen_busier():
    rows = history(lambda at: 15.0 if at >= NOW - 30 else 10.0)
    assert predict(NOW, 2, rows).expected == pytest.approx(10 * 16 / 11, rel=0.05)


def test_working_days_weigh_more_for_a_working_day():
    def weekly(at):
        return 2.0 if (at // MINUTES_PER_DAY + 3) % 7 >= 5 else 20.0

    monday = NOW + 5 * MINUTES_PER_DAY
    assert (monday // MINUTES_PER_DAY + 3) % 7 == 0
    rows = [row for row in history(weekly, days=14, now=monday) if row.minute < monday - 60]  # today is not known
    assert predict(monday, 2, rows).expected > 17


def test_rising_line_is_foreseen_and_bounded():
    rows = [Minute(NOW - ago, 1, 30.0 - 2 * ago) for ago in range(1, 11)]
    found = predict(NOW, 5, rows)
    assert found.why == "trend"
    assert found.expected == pytest.approx(40.0)
    assert predict(NOW, 60, rows).expected == found.expected


def test_constant_and_falling_lines_are_no_trend():
    assert predict(NOW, 5, [Minute(NOW - ago, 1, 20.0) for ago in range(1, 11)]) is None
    assert predict(NOW, 5, [Minute(NOW - ago, 1, 20.0 + ago) for ago in range(1, 11)]) is None


def test_rise_that_is_small_against_the_chance_of_the_load_is_no_trend():
    assert predict(NOW, 5, [Minute(NOW - ago, 1, 20.0 - 0.05 * ago) for ago in range(1, 11)]) is None


def test_chance_of_a_steady_stream_is_rarely_taken_for_a_trend():
    chance, taken = random.Random(1), 0
    for _ in range(500):
        rows = [Minute(NOW - ago, 1, max(chance.gauss(20.0, math.sqrt(20.0 / 4)), 0.0)) for ago in range(1, 11)]
        taken += predict(NOW, 2, rows) is not None
    assert taken <= 10


def test_minutes_outside_of_the_ranges_change_nothing():
    rows = history(lambda at: 10 + 5 * math.sin(at / 100), days=DAYS_MAX)
    wanted = ranges(NOW, 4)
    inside = [row for row in rows if any(first <= row.minute <= last for first, last in wanted)]
    assert predict(NOW, 4, inside) == predict(NOW, 4, rows)
    assert len(inside) <= sum(last - first + 1 for first, last in wanted) <= (DAYS_MAX + 1) * 60


def test_ticks_of_a_minute_add_up_in_one_row():
    row = Minute(NOW)
    for load, need in [(4.0, 1), (20.0, 3), (6.0, 1)]:
        row = record(row, load=load, in_flight=4, arrived=2, served=1, need=need, desired=need)
    assert (row.load, row.in_flight, row.arrived, row.served) == (10.0, 4.0, 6, 3)
    assert (row.need_max, row.desired) == (3, 1)


def test_horizon_is_whole_minutes_and_bounded():
    assert [horizon_of(seconds) for seconds in (1, 60, 61, 1e9)] == [1, 1, 2, 60]


rows = st.lists(
    st.builds(Minute, st.integers(NOW - 15 * 1440, NOW - 1), st.integers(0, 30), st.floats(0, 1e4)), max_size=60
)


@given(rows, st.integers(1, 60))
def test_forecast_is_a_number_whatever_the_history(history, horizon):
    found = predict(NOW, horizon, history)
    if found is not None:
        assert 0 <= found.expected <= found.upper < math.inf
        assert 0 <= found.confidence <= 1
