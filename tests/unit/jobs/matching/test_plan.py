"""The plan of one job: its arithmetic, its reasons, and fixes that are true."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given

from jobs.matching.demand import ISOLATIONS, Demand
from jobs.matching.plan import CANDIDATES_MAX, plan
from jobs.matching.score import cost_of, failure_chance, scaling_efficiency
from jobs.matching.snapshot import NodeRow
from jobs.spec.units import parse_duration, parse_memory, parse_money
from jobs.wire import Fix
from tests.unit.jobs.matching.fleets import demand, demands, fleet, fleets, gpus, node


def test_the_candidates_come_cheapest_to_complete_first_and_the_first_is_chosen() -> None:
    found = plan(demand(), fleet(*(node(n, price_usd_micros=n * 500_000) for n in range(1, 30))))
    costs = [candidate.expected_usd_micros or 0 for candidate in found.candidates]
    assert costs == sorted(costs)
    assert [candidate.is_chosen for candidate in found.candidates] == [True] + [False] * (CANDIDATES_MAX - 1)
    assert found.nodes_seen == 29


def test_cost_to_complete_is_price_times_devices_times_start_up_work_and_rework() -> None:
    wanted = demand(devices=4, checkpoint_seconds=600, work_flops=4e18)
    (candidate,) = plan(wanted, fleet(node(1, successes=80, failures=3, groups=[gpus(4, first=100)]))).candidates
    work = 4e18 / (4 * 400e12 * 0.40 * 0.95**2)
    rework = (4 / 103) * (600 / 2 + 60)
    assert candidate.work_seconds == pytest.approx(work)
    assert candidate.rework_seconds == pytest.approx(rework)
    assert candidate.expected_seconds == pytest.approx(60 + work + rework)
    assert candidate.expected_usd_micros == cost_of(4 * 2_000_000, 60 + work + rework)
    assert candidate.flops_per_second == pytest.approx(4 * 400e12 * 0.40 * 0.95**2)


def test_where_nothing_is_free_the_plan_shows_what_the_job_would_wait_for() -> None:
    found = plan(demand(), fleet(node(1, groups=[gpus(1, free=0)]), node(2, state="offline")))
    assert [(candidate.node_names, candidate.is_free) for candidate in found.candidates] == [(["node-1"], False)]
    assert {(e.code, e.nodes) for e in found.exclusions} == {("busy", 1), ("offline", 1)}


def test_the_reasons_say_what_is_missing_and_the_fix_says_what_would_help() -> None:
    small = [node(n, groups=[gpus(first=n * 100, model="RTX 4090", memory_mib=24_576)]) for n in range(1, 4)]
    dear = [node(n, price_usd_micros=2_450_000) for n in range(4, 6)]
    found = plan(demand(memory_mib=49_152, price_ceiling_usd_micros=2_400_000), fleet(*small, *dear))
    assert [e.message for e in found.exclusions] == [
        "3 lack 48GiB of memory per device",
        "2 above your price of $2.40 per device and hour",
    ]
    assert [(fix.field, fix.value, fix.nodes, fix.message) for fix in found.fixes] == [
        ("budget.max_per_gpu_hour", "2.45", 2, "+$0.05 per GPU-hour adds 2 nodes"),
        ("resources.memory", "24GiB", 3, "24GiB of memory per device adds 3 nodes"),
    ]


def test_no_work_is_promised_a_node_whose_offer_ends_before() -> None:
    found = plan(demand(work_flops=1e20), fleet(node(1, seconds_max=3600)))
    assert [e.code for e in found.exclusions] == ["too_long"]


@given(fleets(), demands())
def test_every_excluded_node_is_counted_once(rows: list[NodeRow], wanted: Demand) -> None:
    found = plan(wanted, fleet(*rows))
    excluded = sum(exclusion.nodes for exclusion in found.exclusions)
    if not found.candidates:
        assert excluded == len(rows)
    elif wanted.nodes == 1 and found.candidates[0].is_free:
        assert excluded + len(found.candidates) == len(rows)


@given(fleets(), demands())
def test_every_fix_makes_the_job_fit(rows: list[NodeRow], wanted: Demand) -> None:
    found = plan(wanted, fleet(*rows))
    assert not (found.fixes and found.candidates)
    for fix in found.fixes:
        helped = plan(apply_fix(wanted, fix), fleet(*rows))
        assert helped.candidates
        assert fix.nodes > 0


@given(fleets(), demands())
def test_no_dearer_candidate_is_chosen_than_another_that_is_shown(rows: list[NodeRow], wanted: Demand) -> None:
    candidates = plan(dataclasses.replace(wanted, avoid=frozenset()), fleet(*rows)).candidates
    if candidates and wanted.work_flops is not None:
        assert candidates[0].expected_usd_micros == min(c.expected_usd_micros or 0 for c in candidates)
    elif candidates:
        assert candidates[0].usd_micros_per_exaflop == min(c.usd_micros_per_exaflop for c in candidates)


def test_nothing_is_lost_to_scaling_on_one_device_and_more_between_nodes_than_in_one() -> None:
    assert scaling_efficiency(1, 1) == 1
    assert scaling_efficiency(8, 1) > scaling_efficiency(1, 8)
    assert failure_chance(0, 0) == pytest.approx(0.05)
    assert failure_chance(0, 100) < failure_chance(3, 100) < failure_chance(0, 0) < failure_chance(10, 0)


def apply_fix(wanted: Demand, fix: Fix) -> Demand:
    """What the customer would get who wrote the fix's value into the job file."""
    names = tuple(name.strip() for name in fix.value.strip("[]").split(","))
    changes: dict[str, tuple[str, Callable[[str], Any]]] = {
        "budget.max_per_gpu_hour": ("price_ceiling_usd_micros", parse_money),
        "budget.max_total": ("cap_usd_micros", parse_money),
        "budget.deadline": ("seconds_left", parse_duration),
        "resources.memory": ("memory_mib", parse_memory),
        "resources.region": ("regions", lambda _: names),
        "resources.models": ("models", lambda _: names),
        "resources.gpus": ("devices", int),
        "resources.nodes": ("nodes", int),
        "resources.kind": ("kind", lambda _: None),
        "resources.isolation": ("isolations", ISOLATIONS.__getitem__),
        "network": ("needs_egress", lambda value: value == "public"),
        "lent": ("lent", lambda _: frozenset(names) - {""}),
    }
    name, read = changes[fix.field]
    return dataclasses.replace(wanted, **{name: read(fix.value)})


def test_a_job_that_names_a_folder_goes_where_it_is_lent() -> None:
    rows = [node(1), node(2, lent=frozenset({"corpus", "images"})), node(3, lent=frozenset({"images"}))]
    (candidate,) = plan(demand(lent=frozenset({"corpus"})), fleet(*rows)).candidates
    assert candidate.node_ids == [UUID(int=2)]


def test_a_folder_that_nobody_lends_is_named_with_what_would_fit() -> None:
    rows = [node(1), node(2, lent=frozenset({"images"}))]
    found = plan(demand(lent=frozenset({"images", "secret"})), fleet(*rows))
    assert [exclusion.message for exclusion in found.exclusions] == ["2 do not lend images and secret"]
    (fix,) = found.fixes
    assert (fix.field, fix.value, fix.message) == ("lent", "[images]", "doing without secret adds 1 node")


def test_a_job_for_the_internet_or_for_gvisor_goes_where_there_is_one() -> None:
    rows = [node(1, isolation="runc"), node(2, isolation="gvisor"), node(3, has_egress=True)]
    assert plan(demand(isolations=("gvisor",)), fleet(*rows)).candidates[0].node_ids == [UUID(int=2)]
    assert plan(demand(needs_egress=True), fleet(*rows)).candidates[0].node_ids == [UUID(int=3)]
    found = plan(demand(isolations=("gvisor",), needs_egress=True), fleet(*rows))
    assert not found.candidates
    assert {fix.field for fix in found.fixes} == {"network", "resources.isolation"}


def test_a_node_that_isolates_nothing_takes_its_own_organisations_jobs_only() -> None:
    alice, bob = UUID(int=1 << 70), UUID(int=2 << 70)
    rows = [
        node(1, isolation="none", organisation_id=bob),
        node(2, isolation="none", organisation_id=alice),
        node(3, isolation="none", organisation_id=bob, allows_strangers=True),
    ]
    anybodys, alices = demand(), demand(organisation_id=alice)
    assert {each.node_ids[0].int for each in plan(anybodys, fleet(*rows)).candidates} == {3}
    assert {each.node_ids[0].int for each in plan(alices, fleet(*rows)).candidates} == {2, 3}
    refused = plan(alices, fleet(rows[0])).exclusions
    assert [each.message for each in refused] == ["1 isolate nothing and take jobs of their own organisation only"]


def test_a_job_that_asks_for_a_container_goes_to_no_node_without() -> None:
    alice = UUID(int=1 << 70)
    rows = [node(1, isolation="none", organisation_id=alice, allows_strangers=True)]
    found = plan(demand(isolations=ISOLATIONS["container"]), fleet(*rows))
    assert [each.code for each in found.exclusions] == ["isolation"]
    (fix,) = found.fixes
    assert (fix.field, fix.value, fix.message) == ("resources.isolation", "none", "isolation none adds 1 node")


def test_a_job_of_a_newer_runtime_goes_to_no_older_agent() -> None:
    wanted = demand(runtime_features=frozenset({"train.ddp"}))
    rows = [node(1), node(2), node(3, runtime_features=frozenset({"train.ddp"}))]
    found = plan(wanted, fleet(*rows))
    assert [each.node_ids for each in found.candidates] == [[UUID(int=3)]]
    assert [each.message for each in found.exclusions] == ["2 whose agent is too old for train.ddp"]


def test_the_ids_of_a_gang_come_in_the_order_of_its_ranks() -> None:
    rows = [node(n, fabric="rack") for n in (3, 1, 2)]
    (candidate,) = plan(demand(nodes=3), fleet(*rows)).candidates
    assert candidate.node_ids == [UUID(int=1), UUID(int=2), UUID(int=3)]
    assert candidate.devices == 3
