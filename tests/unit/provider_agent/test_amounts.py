"""One rule for amounts as people write them: the command line, the admin and the API's texts use it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing import money
from jobs.payment import terms
from provider_agent.protocol import parse_units, show_units
from provider_agent.protocol.money.amounts import UNITS_MAX


@given(st.integers(1, UNITS_MAX), st.integers(0, 36), st.sampled_from(["USD", "WETH"]))
def test_what_is_shown_is_read_back_to_the_unit(units: int, scale: int, asset: str) -> None:
    shown = show_units(units, asset=asset, scale=scale)
    number = shown.removeprefix("$").removesuffix(" WETH")
    if asset == "USD" and scale < 2:
        number = number.split(".")[0] if scale == 0 else number[:-1]  # dollars always show their cents
    assert parse_units(number, scale=scale) == units


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-1",
        "+1",
        "1e3",
        "1,5",
        "0x1",
        "1.",
        ".5",
        "1 2",
        "1_000",
        "١",
        "½",
        "nan",
        "inf",
        "$1",
        "1.5\x00",
        "1" * 79,
    ],
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    for parse in (parse_units, money.parse_amount, terms.parse_units):
        with pytest.raises(ValueError, match="digits"):
            parse(text, scale=6)


@pytest.mark.parametrize("text", ["1.1234567", "1.0000000", "0.0000001"])
def test_more_decimals_than_there_are_are_refused_even_zeros(text: str) -> None:
    with pytest.raises(ValueError, match="6 decimals"):
        parse_units(text, scale=6)


def test_zero_is_refused_where_somebody_pays_and_allowed_where_a_part_may_be_nothing() -> None:
    with pytest.raises(ValueError, match="above zero"):
        parse_units("0.00", scale=6)
    assert money.parse_amount("0.00", scale=6) == 0


def test_more_than_256_bits_is_refused() -> None:
    assert parse_units(str(UNITS_MAX), scale=0) == UNITS_MAX
    with pytest.raises(ValueError, match="256"):
        parse_units(str(UNITS_MAX + 1), scale=0)
    with pytest.raises(ValueError, match="256"):
        parse_units("9" * 70, scale=18)


def test_the_rule_is_in_one_place() -> None:
    assert (terms.parse_units, terms.show_units) == (parse_units, show_units)
    assert money.format_amount(-1_500_000, code="USD", scale=6) == show_units(-1_500_000, asset="USD", scale=6)
