"""What becomes of an endpoint when the decisions are followed, tick by tick: it settles, and stays there."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.scaling.autoscaling import EndpointView, History, decide, minutes_needed
from jobs.scaling.forecast import Minute, record
from jobs.scaling.step_plan import plan_steps
from tests.unit.jobs.serving.loads import MONDAY, policy, replica

TICK = 5


def follow(serve, load_at, *, seconds, cold_start=40, begin=0):
    """The number wanted at each tick, and how many there were, for `load_at(second)` requests at once."""
    started = dict.fromkeys(range(1, begin + 1), -10_000)
    minutes: dict[int, Minute] = {}
    wanted, queue_since, asked_at = [], None, None
    for second in range(0, seconds, TICK):
        now = MONDAY + timedelta(seconds=second)
        load = load_at(second)
        asked_at = second if load else asked_at
        live = [
            replica(number, "ready" if second - at >= cold_start else "starting", float(second - at))
            for number, at in started.items()
        ]
        ready = sum(each.state == "ready" for each in live)
        in_flight = min(load, ready * serve.scale.in_flight)
        queued = load - in_flight
        queue_since = (second if queue_since is None else queue_since) if queued else None
        seen = EndpointView(
            live,
            in_flight=in_flight,
            queued=queued,
            queue_seconds=float(second - queue_since) if queue_since is not None else 0.0,
            is_wanted=bool(queued) and not ready,
            idle_seconds=None if asked_at is None else float(second - asked_at),
            cold_start_seconds=cold_start,
        )
        at = int(now.timestamp()) // 60
        history = History([row for row in minutes.values() if row.minute >= at - minutes_needed()])
        decision = decide(now, serve, seen, history)
        minutes[at] = record(
            minutes.get(at, Minute(at)),
            load=decision.load,
            in_flight=in_flight,
            arrived=0,
            served=0,
            need=decision.need,
            desired=decision.desired,
        )
        found = plan_steps(decision.desired, serve, seen, sorted((r.id for r in live), reverse=True))
        started = {number: at for number, at in started.items() if replica(number).id not in found.drain}
        top = max(started, default=0)
        started |= {top + 1 + number: second for number in range(found.start)}
        wanted.append(decision.desired)
    return wanted, len(started)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 70), st.integers(0, 10), st.integers(5, 200))
def test_constant_load_is_served_by_exactly_what_it_takes_and_nothing_flaps(load, begin, cold_start):
    serve = policy(least=1, most=10)
    wanted, left = follow(serve, lambda _: load, seconds=4000, cold_start=cold_start, begin=begin)
    enough = max(-(-load // 8), 1)
    assert wanted[-1] == left == enough
    changes = sum(before != after for before, after in pairwise(wanted))
    assert changes <= 2
    assert max(wanted) <= max(enough, 1)


@settings(max_examples=15, deadline=None)
@given(st.integers(30, 300), st.integers(1, 40), st.integers(41, 80), st.integers(5, 200))
def test_load_that_swings_faster_than_the_window_makes_nothing_come_and_go(half, low, high, cold_start):
    wanted, _ = follow(policy(), lambda s: high if s // half % 2 else low, seconds=6000, cold_start=cold_start, begin=1)
    steady = wanted[len(wanted) // 2 :]
    swings = sum(before != after for before, after in pairwise(steady))
    window = max(3 * cold_start, 180)
    assert swings == 0 or half >= window


def test_load_that_swings_slowly_is_followed_less_and_less_often():
    wanted, _ = follow(policy(), lambda s: 60 if s // 420 % 2 else 8, seconds=14_400, begin=1)
    grown = [tick for tick, (a, b) in enumerate(pairwise(wanted)) if b > a]
    third = len(wanted) // 3
    assert sum(tick < third for tick in grown) > 1
    assert sum(tick >= 2 * third for tick in grown) <= 1  # once it has been quiet for so long, it is tried again


def test_endpoint_sleeps_wakes_and_sleeps_again():
    serve = policy(least=0, idle="2m")
    wanted, left = follow(serve, lambda s: 4 if 600 <= s < 900 else 0, seconds=1800)
    assert wanted[0] == 0
    assert wanted[600 // TICK] == 1
    assert (wanted[-1], left) == (0, 0)
