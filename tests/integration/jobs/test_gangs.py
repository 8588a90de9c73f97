"""Who is placed with whom, and what the members of a gang receive about each other."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.errors import NoGangPort
from jobs.leases import gangs
from jobs.leases.gangs import choose_port, gang_place
from jobs.models import Lease
from jobs.placing import placement
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import GANG_PORT_FIRST, gang_address
from tests import stage

pytestmark = pytest.mark.django_db

KEYS = ["a" * 64, "b" * 64, "c" * 64]


def fabric(*kinds: str, executor: str = "docker") -> list[Node]:
    """Bob's nodes in one rack, each with what its agent says of gangs."""
    bob = stage.organisation("bob")
    nodes = [stage.node(f"gang-{number}", fabric="rack", provider=bob) for number in range(len(kinds))]
    for number, (node, kind) in enumerate(zip(nodes, kinds, strict=True)):
        fields: dict[str, Any] = {"executor": executor, "facts": {"gang": kind} if kind else {}}
        Node.objects.filter(pk=node.pk).update(
            fabric_key=KEYS[number], fabric_address=f"203.0.113.{number + 1}", **fields
        )
        node.refresh_from_db()
    return nodes


def place_gang(alice: Any, **resources: str) -> list[Lease]:
    return stage.place(stage.submit(alice, two_nodes(**resources)))


def two_nodes(**resources: str) -> Any:
    return stage.spec_of(resources={"gpus": 2, "nodes": 2, "kind": "any", **resources})


@pytest.mark.parametrize("kind", ["wireguard", "plain"])
def test_members_are_named_by_rank_with_their_keys_and_addresses(alice, kind: str) -> None:
    nodes = {node.pk: node for node in fabric(kind, kind)}
    first, second = place_gang(alice)
    place = gang_place(second)
    assert (place.overlay, place.node_rank, place.master_address) == (kind, 1, gang_address(0))
    assert place.members == gang_place(first).members
    assert [each.public_key for each in place.members] == [nodes[lease.node_id].fabric_key for lease in (first, second)]
    assert [each.overlay_address for each in place.members] == ["10.83.0.1", "10.83.0.2"]
    assert {each.port for each in place.members} == {first.attempt.master_port}


def test_processes_meet_at_their_nodes_own_addresses(alice) -> None:
    fabric("address", "", executor="process")  # one agent from before, which says nothing
    Node.objects.update(allows_strangers=True)
    first, second = place_gang(alice, isolation="none")
    assert gang_place(second).master_address == first.node.fabric_address
    assert "members" not in gang_place(second).model_dump()


@pytest.mark.parametrize(
    ("kinds", "executor"),
    [(("none", "wireguard"), "docker"), (("plain", "wireguard"), "docker"), (("", "wireguard"), "docker")],
)
def test_nodes_that_cannot_meet_are_not_placed_together(alice, kinds: tuple[str, ...], executor: str) -> None:
    fabric(*kinds, executor=executor)
    view = gangs_quote(alice)
    assert view.quote_id is None
    assert any(each.code == "fabric" for each in view.plan.exclusions)


def test_node_that_says_wireguard_and_names_no_key_is_in_no_gang(alice) -> None:
    nodes = fabric("wireguard", "wireguard")
    Node.objects.filter(pk=nodes[0].pk).update(fabric_key="")
    view = gangs_quote(alice)
    assert view.quote_id is None
    assert any(each.code == "fabric" for each in view.plan.exclusions)


def test_key_that_goes_between_placing_and_start_leaves_each_member_an_answer(alice) -> None:
    fabric("wireguard", "wireguard")
    leases = place_gang(alice)
    Node.objects.filter(pk=leases[0].node_id).update(fabric_key="")
    for lease in leases:  # an agent that offers an overlay refuses a gang without one, and says so
        assert gang_place(Lease.objects.get(pk=lease.pk)).overlay == ""


def test_gangs_that_meet_on_a_node_or_an_address_have_different_ports(alice) -> None:
    nodes = fabric("wireguard", "wireguard")
    (first, _) = place_gang(alice)
    taken = first.attempt.master_port
    seed = taken - GANG_PORT_FIRST
    assert choose_port(seed, [nodes[0].pk]) == taken + 1
    beside = stage.node("beside", fabric="other", provider=nodes[0].provider.organisation)
    Node.objects.filter(pk=beside.pk).update(fabric_address=nodes[0].fabric_address)
    assert choose_port(seed, [beside.pk]) == taken + 1, "another node of the same address"
    assert choose_port(seed, [stage.node("far").pk]) == taken


def test_no_port_left_is_reported(alice, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = fabric("wireguard", "wireguard")
    (first, _) = place_gang(alice)
    monkeypatch.setattr(gangs, "GANG_PORT_FIRST", first.attempt.master_port)
    monkeypatch.setattr(gangs, "GANG_PORTS", 1)
    with pytest.raises(NoGangPort, match="1 ports"):
        choose_port(0, [nodes[0].pk])


def test_a_gang_without_a_port_is_skipped_for_a_minute(alice, monkeypatch: pytest.MonkeyPatch) -> None:
    fabric("wireguard", "wireguard")
    monkeypatch.setattr(gangs, "GANG_PORTS", 0)
    job = stage.submit(alice, two_nodes())
    assert placement.place_waiting() == 0
    job.refresh_from_db()
    assert "ports" in job.waiting_for
    assert job.skipped_until is not None and job.skipped_until > clock.now()


def gangs_quote(alice: Any) -> Any:
    from jobs.quoting import quotes

    return quotes.make_quote(two_nodes(), alice)
