"""Groups of nodes that reach each other, and what the matcher says of those that do not."""

from __future__ import annotations

from itertools import combinations
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from jobs.matching.demand import MatchRequest
from jobs.matching.fabrics import JOIN_LINKS, Link, groups_of
from jobs.matching.match import match
from jobs.matching.plan import plan
from marketplace.nodes.fabrics.links import wanted_pairs
from tests.unit.jobs.matching.fleets import demand, fleet, node

PAIR = {"nodes": 2, "work_flops": 1e18}


def ids(*numbers: int) -> list[UUID]:
    return [UUID(int=number) for number in numbers]


def good(*pairs: tuple[int, int]) -> list[Link]:
    return [Link(UUID(int=a), UUID(int=b), True) for a, b in pairs]


def bad(*pairs: tuple[int, int]) -> list[Link]:
    return [Link(UUID(int=a), UUID(int=b), False) for a, b in pairs]


def members(groups: dict[UUID, UUID]) -> set[frozenset[int]]:
    found: dict[UUID, set[int]] = {}
    for each, group in groups.items():
        found.setdefault(group, set()).add(each.int)
    return set(map(frozenset, found.values()))


def test_nodes_that_all_reach_each_other_are_one_group() -> None:
    assert members(groups_of(good((1, 2), (1, 3), (2, 3)))) == {frozenset({1, 2, 3})}
    assert groups_of([]) == {}


def test_a_pair_whose_link_failed_is_no_group() -> None:
    assert groups_of(bad((1, 2))) == {}


def test_who_reaches_only_one_of_a_group_does_not_join_it() -> None:
    groups = members(groups_of(good((1, 2), (1, 3), (2, 3), (3, 4))))
    assert groups == {frozenset({1, 2, 3})}, "4 was never measured with 1 and 2"


def test_two_racks_under_one_label_are_two_groups() -> None:
    links = good((1, 2), (3, 4)) + bad((1, 3), (1, 4), (2, 3), (2, 4))
    assert members(groups_of(links)) == {frozenset({1, 2}), frozenset({3, 4})}


def test_one_node_behind_a_firewall_leaves_the_others_together() -> None:
    links = good((1, 2), (1, 3), (2, 3)) + bad((1, 4), (2, 4), (3, 4))
    assert members(groups_of(links)) == {frozenset({1, 2, 3})}


def test_a_large_fabric_is_one_group_though_not_every_pair_was_probed() -> None:
    pairs = wanted_pairs(ids(*range(1, 101)))
    assert len(pairs) < 100 * 99 / 4
    groups = members(groups_of([Link(a, b, True) for a, b in pairs]))
    assert groups == {frozenset(range(1, 101))}


def test_in_a_large_fabric_a_failed_link_keeps_one_end_out() -> None:
    pairs = wanted_pairs(ids(*range(1, 41)))
    failed = {(UUID(int=7), UUID(int=8))}
    groups = groups_of([Link(a, b, (a, b) not in failed) for a, b in pairs])
    assert (UUID(int=7) in groups) != (UUID(int=8) in groups)
    assert len(groups) == 39


@st.composite
def measured(draw: st.DrawFn) -> list[Link]:
    pairs = list(combinations(ids(*range(1, draw(st.integers(2, 9)) + 1)), 2))
    verdicts = [draw(st.sampled_from([True, True, True, False, None])) for _ in pairs]
    return [Link(a, b, verdict) for (a, b), verdict in zip(pairs, verdicts, strict=True) if verdict is not None]


@given(measured(), st.randoms(use_true_random=False))
def test_no_group_has_a_failed_link_and_small_ones_have_every_link(links: list[Link], chance) -> None:
    groups = groups_of(links)
    verdicts = {(link.a, link.b): link.is_good for link in links}
    for group in set(groups.values()):
        inside = sorted(each for each, its in groups.items() if its == group)
        assert len(inside) > 1
        found = [verdicts.get(pair) for pair in combinations(inside, 2)]
        assert False not in found
        if len(inside) <= JOIN_LINKS + 1:
            assert all(found), "every pair was measured"
        for each in inside:
            count = sum(bool(verdicts.get((min(each, other), max(each, other)))) for other in inside if other != each)
            assert count >= 1
    shuffled = list(links)
    chance.shuffle(shuffled)
    assert groups_of(shuffled) == groups


def test_declared_nodes_that_do_not_reach_each_other_differ_from_strangers() -> None:
    declared = [node(n, label="bob/rack", has_failed_link=True) for n in (1, 2)]
    found = match([MatchRequest("a", demand(**PAIR))], fleet(*declared, node(3)))
    assert not found.placements
    reasons = found.reasons["a"]
    assert {(e.code, e.nodes) for e in reasons.exclusions} == {("link", 2), ("fabric", 1)}
    assert "2 declared one fabric, but do not reach each other" in reasons.message


def test_links_that_are_not_measured_yet_are_named_as_such() -> None:
    fresh = [node(n, label="bob/rack") for n in (1, 2)]
    found = plan(demand(**PAIR), fleet(*fresh))
    assert not found.candidates
    assert [(e.code, e.nodes) for e in found.exclusions] == [("unprobed", 2)]
    assert found.exclusions[0].message == "2 declared one fabric whose links are not measured yet"
    assert [(fix.field, fix.value) for fix in found.fixes] == [("resources.nodes", "1")]


def test_a_label_with_too_few_nodes_is_not_blamed_on_its_links() -> None:
    declared = [node(n, label="bob/rack", fabric="g", has_failed_link=True) for n in (1, 2)]
    found = plan(demand(nodes=3, work_flops=1e18), fleet(*declared))
    assert [(e.code, e.nodes) for e in found.exclusions] == [("fabric", 2)]


def test_a_gang_goes_to_the_measured_group_of_a_label() -> None:
    rows = [node(n, label="bob/rack", fabric="g" if n > 1 else "", price_usd_micros=n * 100_000) for n in (1, 2, 3)]
    found = match([MatchRequest("a", demand(**PAIR))], fleet(*rows))
    assert {slot.node_id.int for slot in found.placements["a"].slots} == {2, 3}, "1 is the cheapest, but reaches nobody"
