"""Amounts split and shown without losing a unit."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.fields import AMOUNT_MAX
from billing.money import format_usd, parse_usd, split_cents
from provider_agent.protocol import MS_PER_HOUR, charge

amounts = st.integers(min_value=0, max_value=AMOUNT_MAX)
rates = st.integers(min_value=0, max_value=10**12)
milliseconds = st.integers(min_value=0, max_value=10**12)


@pytest.mark.parametrize(
    ("usd_micros", "shown"),
    [
        (0, "$0.00"),
        (1_234, "$0.001234"),
        (2_500_000, "$2.50"),
        (1_000_000_000, "$1000.00"),
        (123_450_000, "$123.45"),
        (-1, "-$0.000001"),
    ],
)
def test_dollars_are_shown_exactly(usd_micros: int, shown: str) -> None:
    assert format_usd(usd_micros) == shown


@pytest.mark.parametrize(
    ("typed", "usd_micros"),
    [("2.50", 2_500_000), ("$2.5", 2_500_000), (" 10 ", 10_000_000), ("1,000", 1_000_000_000), ("0.000001", 1)],
)
def test_dollars_are_read_as_people_write_them(typed: str, usd_micros: int) -> None:
    assert parse_usd(typed) == usd_micros


@pytest.mark.parametrize("typed", ["", "-1", "1.2345678", "1e6", "NaN", "two", "1.", ".5", "$", "9" * 40, "١٢"])
def test_what_is_no_exact_amount_is_refused(typed: str) -> None:
    with pytest.raises(ValueError, match="not an amount"):
        parse_usd(typed)


@given(st.integers(min_value=0, max_value=10**17))
def test_what_is_shown_can_be_read_back(usd_micros: int) -> None:
    assert parse_usd(format_usd(usd_micros)) == usd_micros


@given(amounts)
def test_cents_and_dust_are_the_whole(usd_micros: int) -> None:
    cents, dust = split_cents(usd_micros)
    assert cents * 10_000 + dust == usd_micros
    assert 0 <= dust < 10_000


@given(rates, st.lists(milliseconds, min_size=1, max_size=50))
def test_charge_does_not_depend_on_how_often_the_meter_is_read(rate: int, durations: list[int]) -> None:
    readings = [0]
    for duration in durations:
        readings.append(readings[-1] + duration)
    increments = [charge(rate, after) - charge(rate, before) for before, after in pairwise(readings)]
    assert sum(increments) == charge(rate, readings[-1])
    assert all(increment >= 0 for increment in increments)


@given(rates, rates, milliseconds, milliseconds)
def test_charge_grows_with_time_and_rate_and_is_nothing_for_no_time(rate: int, more: int, ms: int, longer: int) -> None:
    assert charge(rate, 0) == 0
    assert charge(rate, ms) <= charge(rate, ms + longer)
    assert charge(rate, ms) <= charge(rate + more, ms)
    assert charge(rate, ms) * MS_PER_HOUR <= rate * ms  # in the customer's favour
