"""What is offered for gas: enough for now, more than the last time, and never above the limit."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from billing.chain.transactions.fees import Fees, first_offer, next_offer

AMOUNTS = st.integers(0, 10**12)


@example(0, 0, 10)
@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_a_first_offer_covers_the_base_fee_within_the_limit(base_fee: int, priority_fee: int, limit: int) -> None:
    offered = first_offer(base_fee, priority_fee, limit=limit)
    if offered is None:
        assert base_fee >= limit
        return
    assert base_fee < offered.max_fee <= limit
    assert 1 <= offered.priority_fee <= offered.max_fee


@pytest.mark.parametrize(
    ("base_fee", "limit", "offered"),
    [(100, 1_000, Fees(210, 10)), (100, 150, Fees(150, 10)), (100, 101, Fees(101, 1)), (100, 100, None)],
)
def test_an_offer_lasts_for_a_base_fee_that_doubles(base_fee: int, limit: int, offered: Fees | None) -> None:
    assert first_offer(base_fee, 10, limit=limit) == offered


def test_the_next_offer_is_an_eighth_above_the_last_or_what_is_usual_now() -> None:
    last = Fees(200, 10)
    assert next_offer(last, 50, 10, limit=1_000) == Fees(225, 12)
    assert next_offer(last, 400, 50, limit=1_000) == Fees(850, 50)
    assert next_offer(Fees(200, 200), 50, 1, limit=1_000) == Fees(225, 225)


def test_above_the_limit_there_is_no_next_offer() -> None:
    assert next_offer(Fees(200, 10), 50, 10, limit=224) is None
    assert next_offer(Fees(200, 10), 999, 10, limit=224) is None


def test_what_was_offered_is_stored_exactly() -> None:
    assert Fees.from_json(Fees(2**70, 1).as_json()) == Fees(2**70, 1)
