"""A state has one writer, and of two that race one wins."""

from __future__ import annotations

import functools
from hashlib import sha256
from typing import Any

import pytest

from jobs.states import (
    ATTEMPT_LIVE,
    ATTEMPT_MACHINE,
    JOB_ENDS,
    JOB_MACHINE,
    LEASE_LIVE,
    LEASE_MACHINE,
    REPLICA_LIVE,
    REPLICA_MACHINE,
)
from marketplace.accounts.models import User
from marketplace.accounts.organisations import create
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.ids import new_id
from marketplace.foundation.models import Event
from marketplace.foundation.states import StateMachine, advance, advance_all, record_birth, record_births
from marketplace.nodes.models import Node, Provider
from marketplace.nodes.states import CHECK_LIVE, CHECK_MACHINE
from tests.integration.racing import race

pytestmark = pytest.mark.django_db(transaction=True)


def new_node(provider: Provider, name: str) -> Node:
    fields: dict[str, Any] = {
        "memory_mib": 1,
        "cpu_count": 1,
        "protocol": 1,
        "agent_version": "1",
        "executor": "process",
    }
    return Node.objects.create(
        provider=provider,
        name=name,
        transport_public_key=sha256(name.encode()).hexdigest(),
        receipt_address="0x" + sha256(name.encode()).hexdigest()[:40],
        **fields,
    )


@pytest.fixture
def provider(transactional_db: None) -> Provider:
    owner = create(User.objects.create_user("bob@example.org"), "bob")
    return Provider.objects.create(organisation=owner.organisation, display_name="bob")


@pytest.fixture
def node(provider: Provider) -> Node:
    return new_node(provider, "n")


@pytest.fixture
def nodes(provider: Provider) -> list[Node]:
    """One, two, three. The second is quarantined already."""
    found = [new_node(provider, name) for name in ("one", "two", "three")]
    advance(advance(found[1], "online"), "quarantined")
    Event.objects.all().delete()
    return found


def test_a_move_writes_the_state_its_fields_and_one_event(node: Node) -> None:
    record_birth(node)
    lease_id = new_id()
    moved = advance(node, "online", reason="beat", actor="test", data={"lease_id": lease_id}, failures=3)
    fresh = Node.objects.get(pk=node.pk)
    assert (fresh.state, fresh.failures) == (moved.state, moved.failures) == ("online", 3)
    born, online = Event.objects.filter(subject_kind="node", subject_id=node.pk).order_by("pk")
    assert (born.from_state, born.to_state) == ("", "pending")
    assert (online.from_state, online.to_state, online.reason, online.actor) == ("pending", "online", "beat", "test")
    assert online.data == {"lease_id": str(lease_id)}


def test_a_move_that_is_not_drawn_is_refused_and_leaves_no_event(node: Node) -> None:
    with pytest.raises(StateConflict) as caught:
        advance(node, "draining", failures=9)
    assert caught.value.details == {"kind": "node", "id": str(node.pk), "to": "draining", "state": "pending"}
    assert Node.objects.get().failures == 0
    assert not Event.objects.exists()


def test_what_the_caller_believes_does_not_count(node: Node) -> None:
    node.state = "online"
    with pytest.raises(StateConflict):
        advance(node, "draining")


def test_only_from_narrows_what_is_allowed(node: Node) -> None:
    with pytest.raises(StateConflict):
        advance(node, "online", only_from=["quarantined"])


def test_a_row_that_is_gone_is_a_conflict(node: Node) -> None:
    Node.objects.all().delete()
    with pytest.raises(StateConflict):
        advance(node, "online")


def test_of_five_that_move_one_row_at_once_one_wins(node: Node) -> None:
    outcomes = race(*[functools.partial(advance, Node.objects.get(), "online") for _ in range(5)])
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Node", *["StateConflict"] * 4]
    assert Event.objects.count() == 1


def test_many_move_each_with_its_event_and_who_cannot_is_left_out(nodes: list[Node]) -> None:
    one, two, three = nodes
    Node.objects.filter(pk=three.pk).delete()
    moved = advance_all(nodes, "online", reason="beat", actor="test", data={one.pk: {"n": 1}}, failures=3)
    assert [(each.name, each.state, each.failures) for each in moved] == [("one", "online", 3), ("two", "online", 3)]
    assert set(Node.objects.values_list("name", "state", "failures")) == {("one", "online", 3), ("two", "online", 3)}
    events = Event.objects.order_by("from_state").values_list(
        "subject_kind", "subject_id", "from_state", "to_state", "reason", "actor", "data"
    )
    assert list(events) == [
        ("node", one.pk, "pending", "online", "beat", "test", {"n": 1}),
        ("node", two.pk, "quarantined", "online", "beat", "test", {}),
    ]
    assert three.state == "pending"


def test_many_move_only_from_the_states_that_are_named(nodes: list[Node]) -> None:
    moved = advance_all(nodes, "online", only_from=["quarantined", "offline"])
    assert [each.name for each in moved] == ["two"]
    assert Event.objects.count() == 1
    assert advance_all(nodes, "draining", only_from=["pending"]) == []  # which no node may do
    assert advance_all(nodes[:1], "draining") == []
    assert sorted(Node.objects.values_list("name", "state")) == [
        ("one", "pending"),
        ("three", "pending"),
        ("two", "online"),
    ]
    assert advance_all([], "online") == []


def test_of_five_that_move_all_at_once_one_moves_each(nodes: list[Node]) -> None:
    outcomes = race(*[functools.partial(advance_all, list(Node.objects.all()), "online") for _ in range(5)])
    assert sorted(node.name for moved in outcomes for node in moved) == ["one", "three", "two"]
    assert Event.objects.count() == 3


def test_births_of_many_have_their_data(nodes: list[Node]) -> None:
    record_births(nodes, actor="test", data={nodes[0].pk: {"n": 1}})
    events = {each.subject_id: each for each in Event.objects.all()}
    assert [events[node.pk].data for node in nodes] == [{"n": 1}, {}, {}]
    assert {(each.subject_kind, each.from_state, each.actor) for each in events.values()} == {("node", "", "test")}
    assert [events[node.pk].to_state for node in nodes] == ["pending", "quarantined", "pending"]


@pytest.mark.parametrize(
    ("machine", "live"),
    [
        (ATTEMPT_MACHINE, ATTEMPT_LIVE),
        (LEASE_MACHINE, LEASE_LIVE),
        (REPLICA_MACHINE, REPLICA_LIVE),
        (CHECK_MACHINE, frozenset(CHECK_LIVE)),
        (JOB_MACHINE, frozenset(JOB_MACHINE.transitions) - JOB_ENDS),
    ],
    ids=lambda value: value.kind if isinstance(value, StateMachine) else "",
)
def test_what_is_live_may_still_move(machine: StateMachine, live: frozenset[str]) -> None:
    assert {state for state, targets in machine.transitions.items() if targets} == set(live)
