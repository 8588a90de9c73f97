"""When a locked price is replaced: never unseen, never against the customer beyond what was agreed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.payment.price_rules import PriceReason, decide, is_near, units_due
from jobs.payment.terms import Payment
from jobs.spec import SpecErrors, canonical, from_wire, spec_hash

SPEC = {"kind": "train", "name": "tiny", "budget": {"max_total": "2.00"}, "command": "true"}
prices = st.integers(1, 10**15)
amounts = st.integers(0, 10**15)


@pytest.mark.parametrize(
    ("current", "price", "reason"),
    [
        (1000, 1000, PriceReason.RENEWED),
        (1020, 1000, PriceReason.RENEWED),
        (980, 1000, PriceReason.RENEWED),
        (1021, 1021, PriceReason.ROSE),
        (979, 979, PriceReason.AGREED),
        (900, 900, PriceReason.AGREED),
        (899, 900, PriceReason.AGREED),
        (882, 900, PriceReason.AGREED),
        (881, 881, None),
    ],
)
def test_a_price_of_1000_that_had_been_agreed_down_to_900(current: int, price: int, reason: PriceReason | None) -> None:
    decision = decide(locked=1000, agreed=900, current=current, move_bps=200, is_allowed=False)
    assert (decision.usd_micros_per_token, decision.reason) == (price, reason)


@given(prices, prices, prices, st.integers(0, 5000), st.booleans())
def test_whatever_the_market_does_nobody_has_an_option(
    locked: int, agreed: int, current: int, bps: int, allowed: bool
) -> None:
    """The provider's side: a price that goes on is at most the band above the market's. The customer's: it is below
    what was agreed to only by the customer's own rule, and where the market is too."""
    agreed = min(agreed, locked)
    decision = decide(locked=locked, agreed=agreed, current=current, move_bps=bps, is_allowed=allowed)
    price = decision.usd_micros_per_token
    if decision.reason is None:
        assert not allowed and current < agreed and price == current
        return
    assert price <= current or is_near(current, price, bps)
    assert price >= agreed or (decision.reason == PriceReason.ALLOWED and allowed and price == current)
    assert price >= locked or price >= min(current, agreed)


@given(st.lists(st.integers(-200, 200), min_size=1, max_size=30))
def test_small_moves_do_not_add_up_unseen(moves: list[int]) -> None:
    locked = current = 10**9
    for move in moves:
        current += current * move // 10_000
        decision = decide(locked=locked, agreed=10**9, current=current, move_bps=200, is_allowed=False)
        if decision.reason is None:
            assert current < 10**9 * 98 // 100 + 1
            return
        locked = decision.usd_micros_per_token
        assert is_near(current, locked, 200)


@given(
    prices=st.lists(prices, min_size=1, max_size=6),
    shares=st.lists(st.integers(0, 1000), min_size=6, max_size=6),
    cap=st.integers(1, 10**12),
    scale=st.integers(0, 24),
)
def test_what_is_held_covers_what_was_charged_and_the_rest_of_the_cap(
    prices: list[int], shares: list[int], cap: int, scale: int
) -> None:
    """At each price some of what is left is charged; the hold at the next covers both, and the dollars stay."""
    usd = units = 0
    for price, share in zip(prices, shares, strict=False):
        payment = Payment("WETH", scale, price)
        held = units_due(payment, cap, charged_usd_micros=usd, charged_units=units)
        assert held - units == payment.units_up(cap - usd)
        assert (held - units) * price >= (cap - usd) * 10**scale
        more = (cap - usd) * share // 1000
        usd, units = usd + more, units + payment.units_down(more)
        assert usd <= cap and units <= held


def test_a_raised_cap_holds_the_new_caps_units_and_no_rounding_twice() -> None:
    payment = Payment("WETH", 18, 3_123_456_789)
    before = units_due(payment, 2_000_000, charged_usd_micros=7, charged_units=13)
    after = units_due(payment, 5_000_000, charged_usd_micros=7, charged_units=13)
    assert after - before == payment.units_up(4_999_993) - payment.units_up(1_999_993)


def test_a_job_file_that_says_nothing_keeps_its_hash() -> None:
    quiet = from_wire({**SPEC, "payment": {"asset": "TUSD"}})
    asks = from_wire({**SPEC, "payment": {"asset": "TUSD", "on_price_change": "ask"}})
    requotes = from_wire({**SPEC, "payment": {"asset": "TUSD", "on_price_change": "requote"}})
    assert canonical(quiet)["payment"] == canonical(asks)["payment"] == {"asset": "TUSD", "mode": "credits"}
    assert spec_hash(quiet) == spec_hash(asks) != spec_hash(requotes)
    assert from_wire(canonical(requotes)) == requotes


@pytest.mark.parametrize(
    ("payment", "message"),
    [
        ({"asset": "TUSD", "on_price_change": "refuse"}, "ask"),
        ({"asset": "TUSD", "mode": "escrow", "on_price_change": "requote"}, "what your wallet signed"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(payment: dict[str, str], message: str) -> None:
    with pytest.raises(SpecErrors, match=message):
        from_wire({**SPEC, "payment": payment})
