"""How many replicas there should be."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.scaling.autoscaling import (
    WHY_CHARACTERS_MAX,
    EndpointView,
    History,
    decide,
    scheduled,
    window_seconds,
)
from jobs.scaling.forecast import Forecast
from jobs.spec.kinds.serve import Hours
from tests.unit.jobs.serving.loads import MONDAY, minute, policy, replica, replicas, view

NOTHING = History()


def desired(serve, seen, history=NOTHING, now=MONDAY):
    return decide(now, serve, seen, history).desired


def test_load_is_divided_by_what_one_replica_should_have():
    assert desired(policy(), view(ready=3, in_flight=21)) == 3
    assert desired(policy(), view(ready=3, in_flight=25)) == 4


def test_short_queue_is_no_reason_to_grow():
    assert desired(policy(queue="2s"), view(ready=1, in_flight=8, queued=3, queue_seconds=1.0)) == 1


def test_queue_that_waits_too_long_is_a_reason_to_grow():
    assert desired(policy(queue="2s"), view(ready=1, in_flight=8, queued=3, queue_seconds=2.5)) == 2


def test_queue_grows_an_endpoint_whose_replicas_take_fewer_requests_than_declared():
    assert desired(policy(queue="2s"), view(ready=2, in_flight=4, queued=1, queue_seconds=9.0)) == 3


def test_replica_that_has_just_become_ready_may_take_its_part_of_the_queue_first():
    load = {"in_flight": 8, "queued": 2, "queue_seconds": 9.0}
    settled = [replica(1), replica(2)]
    fresh = [replica(1), replica(2, seconds=1.0)]
    assert desired(policy(), EndpointView(settled, **load)) == 3
    assert desired(policy(), EndpointView(fresh, **load)) == 2


def test_long_queue_counts_by_what_it_takes_to_work_it_off():
    # A request takes 3 s: 80 that wait are 8 requests at once for the half minute in which they should be through.
    past = [minute(MONDAY, ago, in_flight_sum=8.0, served=160) for ago in (1, 2, 3)]
    seen = view(ready=1, in_flight=8, queued=80, queue_seconds=20.0)
    assert desired(policy(), seen, History(past)) == 2
    assert desired(policy(most=20), seen) == 11  # where nobody knows how long a request takes, each counts


def test_sleeping_endpoint_wakes_for_one_request():
    decision = decide(MONDAY, policy(least=0), EndpointView([], queued=1, is_wanted=True), NOTHING)
    assert decision.desired == 1


def test_sleeping_endpoint_wakes_with_as_many_as_the_queue_needs():
    assert desired(policy(least=0), EndpointView([], queued=30, queue_seconds=0.1, is_wanted=True)) == 4


def test_endpoint_sleeps_only_after_nobody_asked_for_long_enough():
    serve = policy(least=0, idle="10m")
    assert desired(serve, view(ready=1, idle_seconds=599.0)) == 1
    decision = decide(MONDAY, serve, view(ready=1, idle_seconds=600.0), NOTHING)
    assert (decision.desired, decision.why) == (0, "0 replicas: nobody asks.")


def test_endpoint_that_nobody_ever_asked_sleeps():
    assert desired(policy(least=0), EndpointView([])) == 0


def test_what_the_window_needed_is_kept_until_the_window_is_over():
    inside, outside = [minute(MONDAY, 3, need_max=4)], [minute(MONDAY, 4, need_max=4)]
    assert desired(policy(), view(ready=4, in_flight=1), History(inside)) == 4
    assert desired(policy(), view(ready=4, in_flight=1), History(outside)) == 1


def test_what_takes_long_to_get_back_is_kept_for_longer():
    quick, slow = view(cold_start_seconds=10.0), view(cold_start_seconds=400.0)
    assert window_seconds(MONDAY, quick, []) < window_seconds(MONDAY, slow, [])


def test_shrinking_that_was_regretted_makes_the_window_longer():
    history = [minute(MONDAY, ago, desired=count) for ago, count in [(60, 3), (50, 2), (40, 3), (30, 2), (20, 3)]]
    assert window_seconds(MONDAY, view(), history) == 4 * window_seconds(MONDAY, view(), [])


def test_forecast_grows_ahead():
    foreseen = Forecast(expected=20.0, upper=26.0, horizon_minutes=2, confidence=0.8, why="season")
    seen = view(ready=1, in_flight=4)
    decision = decide(MONDAY, policy(forecast=True), seen, History(forecast=foreseen))
    assert decision.desired == 4
    assert "26 requests at once are foreseen in 2 min" in decision.why
    assert desired(policy(forecast=False), seen, History(forecast=foreseen)) == 1


def test_forecast_without_confidence_is_ignored():
    foreseen = Forecast(expected=20.0, upper=26.0, horizon_minutes=2, confidence=0.1, why="season")
    assert desired(policy(forecast=True), view(ready=1, in_flight=4), History(forecast=foreseen)) == 1


def test_forecast_of_hardly_anything_keeps_nobody_awake():
    foreseen = Forecast(expected=0.1, upper=0.6, horizon_minutes=2, confidence=0.9, why="season")
    seen = view(ready=1, idle_seconds=5000.0)
    assert desired(policy(least=0, forecast=True), seen, History(forecast=foreseen)) == 0


def test_declared_hours_are_ready_before_they_begin():
    serve = policy(least=0, schedule=[{"at": "12:05-13:00", "min": 3}])
    asleep = EndpointView([], cold_start_seconds=200.0)
    assert desired(serve, asleep, now=MONDAY) == 0
    assert desired(serve, asleep, now=MONDAY + timedelta(seconds=75)) == 3
    assert desired(serve, asleep, now=MONDAY + timedelta(minutes=59)) == 3
    assert desired(serve, asleep, now=MONDAY + timedelta(minutes=60)) == 0


def test_hours_over_midnight_belong_to_the_day_on_which_they_begin():
    night = [Hours(at="22:00-06:00", days=["mon"], min=2)]
    for hours, floor in [(9.9, 0), (10, 2), (15, 2), (17.9, 2), (18, 0), (-8, 0), (34, 0), (10 + 7 * 24, 2)]:
        assert scheduled(MONDAY + timedelta(hours=hours), night, ahead_seconds=0) == floor


def test_hours_from_a_moment_to_itself_are_a_whole_day():
    whole = [Hours(at="08:00-08:00", days=["tue"], min=2)]
    for hours, floor in [(19.9, 0), (20, 2), (43.9, 2), (44, 0)]:
        assert scheduled(MONDAY + timedelta(hours=hours), whole, ahead_seconds=0) == floor


def test_overlapping_hours_ask_for_the_larger():
    both = [Hours(at="10:00-14:00", min=2), Hours(at="11:00-13:00", min=5)]
    assert scheduled(MONDAY, both, ahead_seconds=0) == 5


def test_why_says_that_max_is_reached():
    decision = decide(MONDAY, policy(most=2), view(ready=2, in_flight=16, queued=40, queue_seconds=9.0), NOTHING)
    assert decision.desired == 2
    assert decision.why.startswith("2 replicas: never more, though 7 are wanted: requests wait 9 s")


views = st.builds(
    lambda ready, starting, draining, **more: EndpointView(replicas(ready, starting, draining), **more),
    ready=st.integers(0, 12),
    starting=st.integers(0, 12),
    draining=st.integers(0, 3),
    in_flight=st.integers(0, 200),
    queued=st.integers(0, 200),
    queue_seconds=st.floats(0, 100),
    is_wanted=st.booleans(),
    idle_seconds=st.none() | st.floats(0, 10_000),
    cold_start_seconds=st.floats(1, 1000),
)
policies = st.builds(
    lambda bounds, **scale: policy(least=bounds[0], most=bounds[1], **scale),
    bounds=st.tuples(st.integers(0, 10), st.integers(1, 20)).map(lambda pair: (min(pair), max(pair))),
    in_flight=st.integers(1, 32),
    queue=st.integers(1, 30).map(lambda n: f"{n}s"),
    idle=st.integers(1, 3600).map(lambda n: f"{n}s"),
    forecast=st.booleans(),
)
minutes = st.lists(
    st.builds(
        lambda ago, **more: minute(MONDAY, ago, **more),
        ago=st.integers(0, 200),
        need_max=st.integers(0, 30),
        desired=st.integers(0, 20),
        in_flight_sum=st.floats(0, 100),
        arrived=st.integers(0, 1000),
        served=st.integers(0, 1000),
    ),
    max_size=8,
    unique_by=lambda row: row.minute,
)
forecasts = st.none() | st.builds(
    Forecast,
    expected=st.floats(0, 200),
    upper=st.floats(0, 400),
    horizon_minutes=st.integers(1, 10),
    confidence=st.floats(0, 1),
    why=st.just("season"),
)
histories = st.builds(History, minutes, forecasts)


@given(policies, views, histories)
def test_it_is_always_within_its_bounds_and_says_why(serve, seen, history):
    decision = decide(MONDAY, serve, seen, history)
    assert serve.replicas.min <= decision.desired <= serve.replicas.max
    assert 0 < len(decision.why) <= WHY_CHARACTERS_MAX


@given(policies, views, histories, st.integers(0, 50), st.integers(0, 50))
def test_more_load_never_means_fewer_replicas(serve, seen, history, more_in_flight, more_queued):
    more = EndpointView(
        seen.replicas,
        in_flight=seen.in_flight + more_in_flight,
        queued=seen.queued + more_queued,
        queue_seconds=seen.queue_seconds,
        is_wanted=seen.is_wanted,
        idle_seconds=seen.idle_seconds,
        cold_start_seconds=seen.cold_start_seconds,
    )
    assert desired(serve, more, history) >= desired(serve, seen, history)


@given(policies, views, histories)
def test_who_is_asked_is_never_asleep(serve, seen, history):
    if seen.in_flight + seen.queued > 0 or seen.is_wanted:
        assert desired(serve, seen, history) >= 1


@given(policies, views, histories, st.integers(0, 7 * 1440))
def test_declared_hours_are_honoured_at_every_moment(serve, seen, history, passed):
    hours = Hours(at="08:30-17:15", days=["mon", "thu", "sun"], min=serve.replicas.max)
    with_hours = serve.model_copy(update={"scale": serve.scale.model_copy(update={"schedule": [hours]})})
    now = MONDAY + timedelta(minutes=passed)
    if now.weekday() in {0, 3, 6} and 8 * 60 + 30 <= now.hour * 60 + now.minute < 17 * 60 + 15:
        assert desired(with_hours, seen, history, now) == serve.replicas.max


@pytest.mark.parametrize("load", [0, 1, 8, 9, 40, 200])
def test_same_view_gives_the_same_answer(load):
    seen = view(ready=2, in_flight=load)
    assert decide(MONDAY, policy(), seen, NOTHING) == decide(MONDAY, policy(), seen, NOTHING)
