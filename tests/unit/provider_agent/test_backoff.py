"""The one formula of pauses: doubled, capped, spread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider_agent.protocol.backoff import FULL_JITTER, QUARTER_JITTER, backoff_seconds


def test_the_pause_doubles_with_each_failure_up_to_the_cap() -> None:
    pauses = [backoff_seconds(failures, first=2.0, most=10.0) for failures in range(6)]
    assert pauses == [2.0, 2.0, 4.0, 8.0, 10.0, 10.0]


@pytest.mark.parametrize(("jitter", "low", "high"), [(FULL_JITTER, 0.0, 8.0), (QUARTER_JITTER, 6.0, 10.0)])
def test_the_jitter_spreads_the_pause_between_its_two_factors(
    jitter: tuple[float, float], low: float, high: float
) -> None:
    drawn = [backoff_seconds(3, first=2.0, most=60.0, jitter=jitter) for _ in range(2000)]
    assert low <= min(drawn) < low + 0.5 and high - 0.5 < max(drawn) <= high


@given(
    failures=st.integers(min_value=-5, max_value=10**9),
    first=st.floats(min_value=0.001, max_value=100),
    most=st.floats(min_value=100, max_value=10**6),
)
def test_no_number_of_failures_overflows_or_passes_the_cap(failures: int, first: float, most: float) -> None:
    pause = backoff_seconds(failures, first=first, most=most)
    assert first <= pause <= most
    assert backoff_seconds(failures + 1, first=first, most=most) >= pause


def test_the_draw_can_be_given() -> None:
    assert backoff_seconds(2, first=1.0, most=9.0, jitter=(0.5, 1.5), draw=lambda low, high: high) == 3.0
