"""The terms of a quote: they hold for the chosen place, whatever the fleet and the file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.matching.demand import MatchRequest
from jobs.matching.match import match
from jobs.matching.plan import plan
from jobs.matching.snapshot import NodeRow
from jobs.quoting.quote_terms import CEILING_MULTIPLE, chosen_of, demand_of, terms_of
from jobs.spec.units import format_money
from tests.unit.jobs.matching.fleets import fleet, fleets, node
from tests.unit.jobs.pricing.specs import spec_of

DOLLAR = 1_000_000


def test_the_cap_is_the_budget_and_the_ceiling_the_price_that_the_file_names() -> None:
    spec = spec_of(budget={"max_total": "2.00", "max_per_gpu_hour": "2.50"})
    terms = terms_of(spec, plan(demand_of(spec), fleet(node(1))))
    assert terms is not None
    assert (terms.cap_usd_micros, terms.price_ceiling_usd_micros) == (2 * DOLLAR, 2_500_000)


def test_a_file_that_names_no_price_gets_a_ceiling_above_the_chosen_one() -> None:
    terms = terms_of(spec_of(), plan(demand_of(spec_of()), fleet(node(1, price_usd_micros=400_000))))
    assert terms is not None
    assert terms.price_ceiling_usd_micros == CEILING_MULTIPLE * 400_000


def test_there_are_no_terms_where_nothing_fits() -> None:
    assert terms_of(spec_of(), plan(demand_of(spec_of()), fleet())) is None


def test_a_demand_is_bound_by_the_lower_ceiling_and_by_the_cap_that_resuming_raised() -> None:
    spec = spec_of(budget={"max_total": "2.00", "max_per_gpu_hour": "0.50"})
    low = demand_of(spec, price_ceiling_usd_micros=400_000, cap_usd_micros=DOLLAR)
    high = demand_of(spec, price_ceiling_usd_micros=600_000, cap_usd_micros=3 * DOLLAR)
    assert (low.price_ceiling_usd_micros, low.cap_usd_micros) == (400_000, DOLLAR)
    assert (high.price_ceiling_usd_micros, high.cap_usd_micros) == (500_000, 3 * DOLLAR)


def test_a_job_that_goes_on_is_priced_by_what_is_left() -> None:
    whole, half = demand_of(spec_of()), demand_of(spec_of(), done_share=0.5)
    assert whole.work_flops is not None
    assert half.work_flops == whole.work_flops / 2


def test_a_container_image_needs_a_node_that_can_run_one() -> None:
    spec = spec_of(image="registry.example/own@sha256:" + "0" * 64, command=["true"], train=None)
    assert demand_of(spec).executors == ("docker",)


@given(fleets(), st.integers(1, 10**8), st.one_of(st.none(), st.integers(1, 10**7)), st.integers(1, 10**6))
def test_the_chosen_place_keeps_the_promise_and_placing_finds_it(
    rows: list[NodeRow], cap: int, ceiling: int | None, steps: int
) -> None:
    budget = {"max_total": format_money(cap)} | ({"max_per_gpu_hour": format_money(ceiling)} if ceiling else {})
    spec = spec_of(budget=budget, work={"steps": steps})
    found = plan(demand_of(spec), fleet(*rows))
    terms, chosen = terms_of(spec, found), chosen_of(found)
    assert (terms is None) == (chosen is None)
    if terms is None or chosen is None:
        return
    assert chosen.price_usd_micros_per_device_hour <= terms.price_ceiling_usd_micros
    assert terms.expected_usd_micros is not None
    assert 0 < terms.expected_usd_micros <= terms.cap_usd_micros == cap
    later = demand_of(
        spec, price_ceiling_usd_micros=terms.price_ceiling_usd_micros, cap_usd_micros=terms.cap_usd_micros
    )
    placed = match([MatchRequest("job", later)], fleet(*rows)).placements
    assert ("job" in placed) == chosen.is_free
    if placed:
        assert [slot.node_id for slot in placed["job"].slots] == chosen.node_ids
