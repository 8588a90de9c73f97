"""A state has one writer, and of two that race one wins."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from marketplace.accounts.models import User
from marketplace.accounts.organisations import create
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.ids import new_id
from marketplace.foundation.models import Event
from marketplace.foundation.states import advance, record_birth
from marketplace.nodes.models import Node, Provider
from tests.integration.racing import race

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def node(transactional_db: None) -> Node:
    owner = create(User.objects.create_user("bob@example.org"), "bob")
    provider = Provider.objects.create(organisation=owner.organisation, display_name="bob")
    fields: dict[str, Any] = {
        "memory_mib": 1,
        "cpu_count": 1,
        "protocol": 1,
        "agent_version": "1",
        "executor": "process",
    }
    return Node.objects.create(
        provider=provider, name="n", transport_public_key="0" * 64, receipt_address="0x" + "0" * 40, **fields
    )


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
