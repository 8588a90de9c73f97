"""Whether more nodes are worth it for a gang that trains, by the score's own formulas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.matching.demand import Demand
from jobs.matching.growth import GROWTH_COST_MAX, GangNode, Left, growth_of
from jobs.matching.score import cost_of, scaling_efficiency

NODE = GangNode(price_usd_micros=1_000_000, flops_per_device=1e13, startup_seconds=60.0, break_chance=0.05)
DEMAND = Demand(devices=1, nodes=2)
HOUR_FLOPS = 3600 * 2 * 1e13 * 0.4 * scaling_efficiency(1, 2)  # that two such nodes are reckoned to do


def left(hours: float, *, redo: float = 0.0, spent: int = 0, fewest: int = 2) -> Left:
    return Left(hours * HOUR_FLOPS, redo, fewest, spent)


def test_a_long_training_grows_by_as_many_as_cost_a_quarter_more() -> None:
    demand = Demand(devices=1, nodes=2, checkpoint_share=0.01)
    grown = [growth_of(demand, "gpu", [NODE] * 2, [NODE] * more, left(100)) for more in (1, 2, 4)]
    assert [each is not None for each in grown] == [True, True, False]
    seconds = [each.expected_seconds for each in grown if each is not None]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] < 100 * 3600


def test_what_it_costs_beside_the_training_is_a_start_and_what_is_done_again() -> None:
    grown = growth_of(DEMAND, "gpu", [NODE] * 2, [NODE], left(10, redo=100))
    assert grown is not None
    again = 100 * 2 * scaling_efficiency(1, 2) / (3 * scaling_efficiency(1, 3))
    assert grown.once_usd_micros == pytest.approx(cost_of(3_000_000, 60 + again), abs=2)


@pytest.mark.parametrize(
    ("hours", "redo", "spent"),
    [
        pytest.param(0.1, 0, 0, id="little is left"),
        pytest.param(0.1, 500, 0, id="nothing is left"),
        pytest.param(1, 1200, 0, id="much is done again"),
        pytest.param(10, 0, 5_000_000, id="growths before have cost enough"),
    ],
)
def test_a_growth_that_is_not_worth_it_is_none(hours: float, redo: float, spent: int) -> None:
    assert growth_of(DEMAND, "gpu", [NODE] * 2, [NODE], left(hours, redo=redo, spent=spent)) is None


def test_a_dear_or_a_slow_node_is_not_worth_it() -> None:
    for other in (NODE._replace(price_usd_micros=2_000_000), NODE._replace(flops_per_device=4e12)):
        assert growth_of(DEMAND, "gpu", [NODE] * 2, [other], left(10)) is None


def test_cheap_nodes_do_not_pay_for_dear_ones() -> None:
    """Of the gang that it has, and of the fewest nodes, the lesser counts."""
    dear, cheap = NODE, NODE._replace(price_usd_micros=100_000)
    assert growth_of(DEMAND, "gpu", [dear, dear, cheap, cheap], [dear] * 2, left(10)) is None


@given(
    hours=st.floats(0.01, 1000),
    redo=st.floats(0, 3600),
    spent=st.integers(0, 10**8),
    more=st.integers(1, 8),
    price=st.integers(1, 10**7),
    flops=st.floats(1e11, 1e15),
)
def test_no_growth_costs_more_than_it_may_or_ends_later(
    hours: float, redo: float, spent: int, more: int, price: int, flops: float
) -> None:
    other = GangNode(price, flops, 60.0, 0.05)
    grown = growth_of(DEMAND, "gpu", [NODE] * 2, [other] * more, left(hours, redo=redo, spent=spent))
    if grown is None:
        return
    # Two nodes would take so long, and with half of it done again where one of them breaks.
    most = (hours * 3600 - redo) * (1 + (1 - 0.95**2) / 2) + 1
    assert grown.expected_seconds < most
    assert spent + grown.expected_usd_micros <= GROWTH_COST_MAX * cost_of(2_000_000, most)
    assert grown.once_usd_micros <= grown.expected_usd_micros
