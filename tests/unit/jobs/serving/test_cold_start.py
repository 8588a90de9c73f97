"""How long a replica takes until it is ready."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.scaling.cold_start import SECONDS_MAX, SECONDS_MIN, PastStart, StartPlan, estimate, soonest


def plan(node_class="A100 docker", cached=True, mib=10_000.0, **more):
    return StartPlan("docker", "vllm", mib, cached, node_class, **more)


def past(*seconds, of=None, **more):
    return [PastStart(of or plan(), each, **more) for each in seconds]


def test_without_any_past_start_the_assumption_is_used():
    cached, not_cached = estimate(plan(), []), estimate(plan(cached=False), [])
    assert cached.likely_seconds == pytest.approx(plan().assumed_seconds)
    assert not_cached.likely_seconds == pytest.approx(cached.likely_seconds + 200)
    assert cached.surely_seconds > 2 * cached.likely_seconds


def test_past_starts_take_the_assumptions_place():
    found = estimate(plan(), past(*[40.0, 44.0, 38.0, 42.0] * 5))
    assert found.likely_seconds == pytest.approx(41.0, rel=0.15)
    assert found.surely_seconds < 1.8 * found.likely_seconds


def test_more_alike_starts_count_more():
    same = estimate(plan(), past(300.0, 300.0))
    other_nodes = estimate(plan(), past(300.0, 300.0, of=plan("L4 docker")))
    other_endpoint = estimate(plan(), past(300.0, 300.0, is_same_endpoint=False))
    nothing_alike = estimate(plan(), past(300.0, 300.0, of=plan("L4 docker"), is_same_endpoint=False))
    likely = [each.likely_seconds for each in (same, other_nodes, other_endpoint, nothing_alike)]
    assert likely == sorted(set(likely), reverse=True)
    assert nothing_alike.likely_seconds == pytest.approx(plan().assumed_seconds)


def test_start_that_still_goes_on_counts_once_it_is_late():
    usual = past(*[40.0] * 6)
    waiting = past(600.0, is_over=False)
    assert estimate(plan(), usual + waiting).surely_seconds > estimate(plan(), usual).surely_seconds
    young = past(5.0, is_over=False)
    assert estimate(plan(), usual + young) == estimate(plan(), usual)


def test_nine_of_ten_starts_take_no_longer_than_surely():
    chance, kept = random.Random(2), 0
    starts: list[PastStart] = []
    for _ in range(400):
        took = 90.0 * math.exp(chance.gauss(0, 0.3))
        kept += took <= estimate(plan(), starts).surely_seconds
        starts.insert(0, PastStart(plan(), took))
    assert 0.86 <= kept / 400 <= 0.97


def test_start_that_is_late_is_expected_later():
    found = estimate(plan(), past(*[60.0] * 10))
    assert found.remaining(0.0) == pytest.approx(found.likely_seconds, rel=0.05)
    assert found.remaining(30.0) < found.remaining(0.0)
    assert found.remaining(600.0) > found.remaining(60.0)
    assert found.remaining(1e6) <= SECONDS_MAX


def test_whoever_waits_gets_the_time_of_the_replica_that_is_ready_first():
    found = estimate(plan(), past(*[60.0] * 10))
    assert soonest([50.0, 5.0], found) == found.remaining(50.0)
    assert soonest([], found) == found.likely_seconds
    assert soonest([], found, is_one_due=False) is None


@given(
    st.lists(st.tuples(st.floats(0, 1e9), st.booleans(), st.booleans()), max_size=60),
    st.floats(0, 1e9),
    st.floats(0.01, 0.99),
)
def test_estimate_is_bounded_and_rises_with_the_chance(rows, passed, chance):
    found = estimate(plan(), [PastStart(plan(), *row) for row in rows])
    assert SECONDS_MIN <= found.quantile(chance / 2) <= found.quantile(chance) <= SECONDS_MAX
    assert 0 <= found.remaining(passed, chance) <= SECONDS_MAX
