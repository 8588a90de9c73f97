"""Nodes that close: nothing is placed that could outlast them, and the nearest fix says what would fit."""

from __future__ import annotations

import pytest

from jobs.matching.demand import MatchRequest
from jobs.matching.match import match
from jobs.matching.plan import plan
from tests.unit.jobs.matching.fleets import demand, fleet, node

HOUR = 3600.0


def is_placed(*rows: object, **wanted: object) -> bool:
    result = match([MatchRequest("job", demand(**wanted))], fleet(*rows))
    return "job" in result.placements


def test_job_that_is_done_before_the_node_closes_is_placed_and_a_longer_one_is_not() -> None:
    closing = node(1, open_seconds=HOUR)
    assert is_placed(closing, work_flops=400e12 * 600)
    assert not is_placed(closing, work_flops=400e12 * 3600)
    assert is_placed(closing, node(2), work_flops=400e12 * 3600)


def test_job_without_declared_work_may_last_as_long_as_budget_and_deadline_let_it() -> None:
    closing = node(1, open_seconds=HOUR)  # at $2 an hour
    assert is_placed(closing, work_flops=None, cap_usd_micros=2_000_000)
    assert not is_placed(closing, work_flops=None, cap_usd_micros=2_100_000)
    assert is_placed(closing, work_flops=None, cap_usd_micros=10**9, seconds_left=HOUR)
    assert not is_placed(closing, work_flops=None, cap_usd_micros=10**9, seconds_left=HOUR + 1)


def test_a_gang_is_not_placed_where_one_of_its_nodes_closes() -> None:
    rows = [node(1, fabric="f", open_seconds=HOUR), node(2, fabric="f")]
    assert is_placed(*rows, nodes=2, work_flops=None, cap_usd_micros=4_000_000)
    assert not is_placed(*rows, nodes=2, work_flops=None, cap_usd_micros=5_000_000)


@pytest.mark.parametrize(("state", "code"), [("closed", "closed"), ("online", "window")])
def test_the_reason_is_named(state: str, code: str) -> None:
    found = plan(demand(work_flops=None), fleet(node(1, state=state, open_seconds=HOUR)))
    assert [exclusion.code for exclusion in found.exclusions] == [code]


def test_the_nearest_fix_is_the_hour_at_which_they_close() -> None:
    found = plan(demand(work_flops=None), fleet(node(1, open_seconds=HOUR), node(2, open_seconds=2.5 * HOUR)))
    (fix,) = found.fixes
    assert (fix.field, fix.value, fix.nodes) == ("budget.deadline", "150m", 1)
    assert is_placed(node(2, open_seconds=2.5 * HOUR), work_flops=None, seconds_left=150 * 60.0)
