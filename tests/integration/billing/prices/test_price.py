"""Arithmetic with a price is exact: properties over prices, scales and amounts up to 256 bits."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from billing.errors import AmountInvalid, AmountTooLarge
from billing.fields import AMOUNT_MAX
from billing.prices import Price
from marketplace.foundation import clock

PRICES = st.builds(
    Price,
    asset_id=st.just(7),
    usd_micros_per_token=st.integers(1, 10**15) | st.integers(1, AMOUNT_MAX),
    scale=st.integers(0, 36),
    source=st.just("fixed"),
    observed_at=st.just(clock.now()),
)
AMOUNTS = st.integers(0, 10**24) | st.integers(0, AMOUNT_MAX)


def exact_units(price: Price, usd_micros: int) -> Fraction:
    return Fraction(usd_micros * 10**price.scale, price.usd_micros_per_token)


@given(PRICES, AMOUNTS)
def test_units_are_the_exact_quotient_rounded_as_named(price, usd_micros):
    exact = exact_units(price, usd_micros)
    assume(exact + 1 <= AMOUNT_MAX)
    down, up = price.units_down(usd_micros), price.units_up(usd_micros)
    assert down <= exact <= up
    assert up - down == (exact.denominator != 1)


@given(PRICES, AMOUNTS)
def test_no_round_trip_makes_money(price, usd_micros):
    assume(exact_units(price, usd_micros) + 1 <= AMOUNT_MAX)
    assert price.usd_micros(price.units_down(usd_micros)) <= usd_micros
    try:
        assert price.usd_micros_up(price.units_up(usd_micros)) >= usd_micros
    except AmountTooLarge:
        assert usd_micros > AMOUNT_MAX // 2 or price.usd_micros_per_token > AMOUNT_MAX // 2


@given(PRICES, AMOUNTS, AMOUNTS)
def test_more_dollars_never_buy_less(price, one, other):
    low, high = sorted((one, other))
    assume(exact_units(price, high) + 1 <= AMOUNT_MAX)
    assert price.units_down(low) <= price.units_down(high)
    assert price.units_up(low) <= price.units_up(high)


@given(PRICES, AMOUNTS)
def test_what_does_not_fit_in_256_bits_is_refused(price, usd_micros):
    if exact_units(price, usd_micros) >= AMOUNT_MAX + 1:
        with pytest.raises(AmountTooLarge):
            price.units_down(usd_micros)
    else:
        assert price.units_down(usd_micros) <= AMOUNT_MAX


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "7", AMOUNT_MAX + 1])
def test_what_is_not_an_amount_is_refused(wrong):
    price = Price(7, 3_120_550_000, 18, "fixed", clock.now())
    for convert in (price.units_down, price.units_up, price.usd_micros, price.usd_micros_up):
        with pytest.raises((AmountInvalid, AmountTooLarge)):
            convert(wrong)


@pytest.mark.parametrize("wrong", [0, -5, AMOUNT_MAX + 1])
def test_a_price_is_above_zero(wrong):
    with pytest.raises(AmountInvalid):
        Price(7, wrong, 18, "fixed", clock.now())


def test_a_dollar_of_ether_at_3120_55():
    price = Price(7, 3_120_550_000, 18, "fixed", clock.now())
    assert price.units_down(1_000_000) == 320456329813654
    assert price.units_up(1_000_000) == 320456329813655
    assert price.usd_micros(10**18) == 3_120_550_000
