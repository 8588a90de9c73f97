"""A charge is split into fee and pay without losing a unit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.charging.fees import split_fee
from billing.fields import AMOUNT_MAX

amounts = st.integers(min_value=0, max_value=AMOUNT_MAX)


@given(amounts, st.integers(min_value=0, max_value=10_000))
def test_P12_fee_and_rest_are_the_whole(charged: int, fee_bps: int) -> None:
    fee, rest = split_fee(charged, fee_bps)
    assert fee + rest == charged
    assert 0 <= fee <= charged
    assert fee * 10_000 <= charged * fee_bps  # rounded down


def test_P12_the_whole_may_be_the_fee() -> None:
    assert split_fee(7, 10_000) == (7, 0)


@pytest.mark.parametrize(("charged", "fee_bps"), [(-1, 0), (1, -1), (1, 10_001)])
def test_P12_no_fee_outside_of_zero_to_one(charged: int, fee_bps: int) -> None:
    with pytest.raises(ValueError, match="basis points"):
        split_fee(charged, fee_bps)
