"""A batch of jobs on a fleet: what is never done, what is done first, who waits for whom."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from jobs.matching.demand import Demand, MatchRequest, flops_of, is_accepted
from jobs.matching.fit import screen
from jobs.matching.match import Policy, match
from jobs.matching.reservations import RESERVED_SECONDS
from jobs.matching.snapshot import NodeRow, is_model
from tests.unit.jobs.matching.fleets import NOW, demand, demands, fleet, fleets, gpus, node


def request(
    key: str,
    wanted: Demand | None = None,
    *,
    priority: int = 50,
    after: int = 0,
    turn: int = 0,
    organisation: UUID | None = None,
) -> MatchRequest:
    return MatchRequest(key, wanted or demand(), priority, NOW + timedelta(seconds=after), turn, organisation)


def test_a_job_goes_to_the_node_that_completes_it_cheapest_not_to_the_lowest_price() -> None:
    slow = gpus(first=100, flops_per_second={"bfloat16": 50e12})
    found = match(
        [request("a")],
        fleet(
            node(1, price_usd_micros=1_000_000, groups=[slow]),
            node(2, price_usd_micros=2_000_000, groups=[gpus(first=200)]),
        ),
    )
    assert [slot.node_id for slot in found.placements["a"].slots] == [UUID(int=2)]
    assert not found.reasons


def test_work_without_a_figure_goes_where_a_unit_of_throughput_is_cheapest() -> None:
    fast = gpus(first=100, flops_per_second={"bfloat16": 400e12})
    slow = gpus(first=200, flops_per_second={"bfloat16": 300e12})
    rows = fleet(node(1, price_usd_micros=2_000_000, groups=[fast]), node(2, price_usd_micros=1_600_000, groups=[slow]))
    found = match([request("a", demand(work_flops=None))], rows)
    assert found.placements["a"].slots[0].node_id == UUID(int=1)
    assert found.placements["a"].estimate.expected_usd_micros is None


def test_a_node_that_lost_the_job_before_is_taken_last_but_taken() -> None:
    rows = [node(1, price_usd_micros=1_000_000), node(2, price_usd_micros=3_000_000)]
    shy = demand(avoid=frozenset({UUID(int=1)}))
    assert match([request("a", shy)], fleet(*rows)).placements["a"].slots[0].node_id == UUID(int=2)
    assert match([request("a", shy)], fleet(rows[0])).placements["a"].slots[0].node_id == UUID(int=1)


def test_an_unreliable_node_loses_to_a_reliable_one_at_the_same_price() -> None:
    rows = fleet(node(1, failures=9, successes=1), node(2, failures=0, successes=10))
    assert match([request("a")], rows).placements["a"].slots[0].node_id == UUID(int=2)


def test_first_come_is_first_served_within_a_priority() -> None:
    queue = [request("late", after=9), request("early", after=1), request("urgent", priority=90, after=20)]
    found = match(queue, fleet(node(1, groups=[gpus(2, first=100)])))
    assert set(found.placements) == {"urgent", "early"}
    assert found.reasons["late"].is_possible
    assert found.reasons["late"].message == "0 of 1 nodes: 1 busy"


def test_a_small_job_does_not_overtake_a_large_one_on_a_node_that_it_waits_for() -> None:
    half_free = node(1, groups=[gpus(8, free=4, first=100)])
    queue = [request("large", demand(devices=8), after=1), request("small", after=2)]
    found = match(queue, fleet(half_free))
    assert not found.placements
    assert {key: reason.is_possible for key, reason in found.reasons.items()} == {"large": True, "small": True}
    assert found.reasons["small"].message == "0 of 1 nodes: 1 kept for an older job that waits for them"


def test_a_small_job_goes_ahead_on_a_node_that_can_never_take_the_large_one() -> None:
    queue = [request("large", demand(devices=8), after=1), request("small", after=2)]
    rows = fleet(node(1, groups=[gpus(8, free=4, first=100)]), node(2, price_usd_micros=9_000_000))
    assert match(queue, rows).placements["small"].slots[0].node_id == UUID(int=2)
    assert "small" in match(queue, rows, Policy(has_backfill=False)).reasons


def test_a_waiting_job_keeps_one_node_and_not_every_node_that_could_take_it() -> None:
    rows = [node(n, groups=[gpus(8, free=4, first=n * 100)]) for n in (1, 2, 3)]
    rows[1] = node(2, groups=[gpus(8, free=6, first=200)])
    queue = [request("large", demand(devices=8), after=1), *(request(f"small-{n}", after=2 + n) for n in range(9))]
    found = match(queue, fleet(*rows))
    assert found.reservations.node_ids == {UUID(int=2)}, "the one that needs the fewest devices more"
    taken = {slot.node_id for placement in found.placements.values() for slot in placement.slots}
    assert taken == {UUID(int=1), UUID(int=3)}
    assert len(found.placements) == 8


def test_many_waiting_jobs_of_one_organisation_keep_one_node_together() -> None:
    rows = [node(n, groups=[gpus(8, free=4, first=n * 100)]) for n in (1, 2, 3)]
    mallory, alice = UUID(int=1), UUID(int=2)
    queue = [request(f"large-{n}", demand(devices=8), after=n, organisation=mallory) for n in range(9)]
    found = match([*queue, request("small", after=10, organisation=alice)], fleet(*rows))
    assert len(found.reservations.node_ids) == 1
    assert set(found.placements) == {"small"}


def test_what_was_kept_in_one_batch_is_kept_in_the_next() -> None:
    rows = fleet(node(1, groups=[gpus(8, free=4, first=100)]))
    kept = match([request("large", demand(devices=8))], rows).reservations
    assert set(match([request("small", after=1)], rows, reservations=kept).reasons) == {"small"}


def test_a_gang_keeps_the_nodes_that_lack_the_fewest_devices() -> None:
    free = {1: 0, 2: 2, 3: 2, 4: 1}
    rows = [node(n, fabric="rack", groups=[gpus(2, free=free[n], first=n * 100)]) for n in free]
    found = match([request("gang", demand(devices=2, nodes=3))], fleet(*rows))
    assert found.reservations.node_ids == {UUID(int=2), UUID(int=3), UUID(int=4)}


def test_a_node_is_kept_for_a_bounded_time_then_another_then_none() -> None:
    rows = [node(n, price_usd_micros=n * 1_000_000, groups=[gpus(8, free=0, first=n * 100)]) for n in (1, 2)]
    kept = []
    for turn in range(4):
        large = request("large", demand(devices=8), after=-turn * RESERVED_SECONDS)
        kept.append({each.int for each in match([large], fleet(*rows)).reservations.node_ids})
    assert kept == [{1}, {2}, set(), {1}]


def test_organisations_take_turns_within_a_priority() -> None:
    mallory, alice = UUID(int=1), UUID(int=2)
    queue = [request(f"theirs-{n}", after=n, turn=n, organisation=mallory) for n in range(5)]
    queue.append(request("hers", after=9, turn=0, organisation=alice))
    found = match(queue, fleet(node(1, groups=[gpus(2, first=100)])))
    assert set(found.placements) == {"theirs-0", "hers"}


@given(fleets(), st.lists(st.tuples(demands(), st.integers(1, 3)), min_size=1, max_size=8))
def test_nothing_is_kept_for_a_second_job_of_an_organisation(
    rows: list[NodeRow], wanted: list[tuple[Demand, int]]
) -> None:
    queue = [request(str(i), each, after=i, organisation=UUID(int=who)) for i, (each, who) in enumerate(wanted)]
    found = match(queue, fleet(*rows))
    most = [max((each.nodes for each, one in wanted if one == who), default=0) for who in (1, 2, 3)]
    assert len(found.reservations.node_ids) <= sum(most)


def test_waiting_jobs_of_many_keep_half_of_what_they_could_take() -> None:
    rows = fleet(*(node(number, groups=[gpus(8, first=100 * number, free=4)]) for number in range(1, 11)))
    waiting = [request(f"large {number}", demand(devices=8), organisation=UUID(int=number)) for number in range(1, 9)]
    small = [request(f"small {number}", after=9, organisation=UUID(int=9)) for number in range(10)]
    found = match(waiting + small, rows)
    assert len(found.reservations.node_ids) == 5
    assert len(found.placements) == 10, "the other half is rented meanwhile"


def test_one_gang_keeps_what_it_needs_however_much_that_is() -> None:
    rows = [node(number, groups=[gpus(8, first=100 * number, free=4)], fabric="rack") for number in range(1, 5)]
    waiting = [
        request(f"gang {number}", demand(devices=8, nodes=3), organisation=UUID(int=number)) for number in (1, 2)
    ]
    found = match([*waiting, request("large", demand(devices=8), after=1, organisation=UUID(int=3))], fleet(*rows))
    assert len(found.reservations.node_ids) == 3


def test_a_job_that_fits_nowhere_holds_up_nobody() -> None:
    queue = [request("impossible", demand(devices=64), after=1), request("small", after=2)]
    found = match(queue, fleet(node(1)), Policy(has_backfill=False))
    assert set(found.placements) == {"small"}
    assert not found.reasons["impossible"].is_possible


def test_a_gang_is_placed_whole_on_one_fabric_or_not_at_all() -> None:
    pair = demand(nodes=2)
    apart = [node(1, fabric="rack-1"), node(2, fabric="rack-2"), node(3), node(4)]
    found = match([request("a", pair)], fleet(*apart))
    assert not found.placements
    assert {(e.code, e.nodes) for e in found.reasons["a"].exclusions} == {("fabric", 4)}
    together = match([request("a", pair)], fleet(*apart, node(5, fabric="rack-2")))
    assert [slot.node_id for slot in together.placements["a"].slots] == [UUID(int=2), UUID(int=5)]


def test_a_gang_leaves_out_the_slow_node_that_would_hold_up_the_others() -> None:
    slow = gpus(first=300, flops_per_second={"bfloat16": 40e12})
    rows = [node(n, fabric="rack", price_usd_micros=2_000_000) for n in (1, 2)]
    rows.append(node(3, fabric="rack", price_usd_micros=1_000_000, groups=[slow]))
    found = match([request("a", demand(nodes=2))], fleet(*rows))
    assert {slot.node_id for slot in found.placements["a"].slots} == {UUID(int=1), UUID(int=2)}


@given(fleets(), st.lists(st.tuples(demands(), st.integers(0, 2)), min_size=1, max_size=8))
def test_no_job_is_placed_where_it_does_not_fit_and_no_device_twice(
    rows: list[NodeRow], wanted: list[tuple[Demand, int]]
) -> None:
    queue = [request(str(i), each, priority=50 + rank, after=i) for i, (each, rank) in enumerate(wanted)]
    found = match(queue, fleet(*rows))
    assert found.placements.keys() | found.reasons.keys() == {each.key for each in queue}
    assert not found.placements.keys() & found.reasons.keys()
    by_id = {row.node_id: row for row in rows}
    taken: Counter[UUID] = Counter()
    for each in queue:
        if each.key not in found.placements:
            continue
        slots = found.placements[each.key].slots
        assert len({slot.node_id for slot in slots}) == len(slots) == each.demand.nodes
        if each.demand.nodes > 1:
            fabrics = {by_id[slot.node_id].fabric for slot in slots}
            assert len(fabrics) == 1
            assert "" not in fabrics
        cost = found.placements[each.key].estimate.expected_usd_micros
        assert cost is None or each.demand.cap_usd_micros is None or cost <= each.demand.cap_usd_micros
        for slot in slots:
            assert_fits(by_id[slot.node_id], each.demand, slot.device_ids)
            assert slot.price_usd_micros == by_id[slot.node_id].price_usd_micros
            taken.update(slot.device_ids)
    assert all(times == 1 for times in taken.values())


@given(fleets(), demands(), st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_changes_nothing(rows: list[NodeRow], wanted: Demand, random: Random) -> None:
    first = match([request("a", wanted)], fleet(*rows))
    random.shuffle(rows)
    assert match([request("a", wanted)], fleet(*rows)) == first


@given(fleets(), demands())
def test_every_node_has_a_slot_or_exactly_one_reason(rows: list[NodeRow], wanted: Demand) -> None:
    screening = screen(wanted, fleet(*rows))
    assert len({slot.row for slot in screening.slots}) == len(screening.slots)
    assert len(screening.slots) + screening.excluded.total() == len(rows)
    found = match([request("a", wanted)], fleet(*rows))
    if "a" in found.reasons:
        assert sum(exclusion.nodes for exclusion in found.reasons["a"].exclusions) == len(rows)


def test_a_model_is_known_by_its_words_not_by_its_letters() -> None:
    assert is_model("H100", "NVIDIA H100 80GB HBM3")
    assert is_model("rtx4090", "NVIDIA GeForce RTX 4090")
    assert is_model("A100-80GB", "NVIDIA A100-SXM4-80GB")
    assert not is_model("A100", "NVIDIA RTX A1000")
    assert not is_model("H100", "NVIDIA H200")


def assert_fits(row: NodeRow, wanted: Demand, device_ids: tuple[UUID, ...]) -> None:
    assert row.state == "online"
    assert row.is_measured
    assert row.offer_id is not None
    assert not wanted.regions or row.region in wanted.regions
    is_own = wanted.organisation_id is not None and row.organisation_id == wanted.organisation_id
    allows = row.allows_strangers
    assert is_accepted(row.isolation, is_own=is_own, allows_strangers=allows, isolations=wanted.isolations)
    assert row.has_egress or not wanted.needs_egress
    assert wanted.lent <= row.lent
    assert not wanted.executors or row.executor in wanted.executors
    assert wanted.price_ceiling_usd_micros is None or row.price_usd_micros <= wanted.price_ceiling_usd_micros
    (group,) = [group for group in row.groups if set(device_ids) <= set(group.free)]
    assert len(set(device_ids)) == len(device_ids) == wanted.devices
    assert wanted.kind in {None, group.kind}
    assert group.memory_mib >= wanted.memory_mib
    assert not wanted.models or any(is_model(model, group.model) for model in wanted.models)
    assert flops_of(group.flops_per_second, group.kind, wanted.dtype) > 0


def test_a_match_whose_time_is_over_leaves_the_last_for_later() -> None:
    looks = iter([False, True])
    rows = fleet(node(1), node(2), node(3))
    found = match([request("a"), request("b"), request("c")], rows, is_late=lambda: next(looks))
    assert (set(found.placements), found.reasons, found.is_cut) == ({"a", "b"}, {}, True)
    assert set(match([request("a")], rows, is_late=lambda: True).placements) == {"a"}, "it always comes further"
