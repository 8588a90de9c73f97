"""The states of a node, as drawn."""

from __future__ import annotations

from marketplace.nodes.states import NODE_MACHINE, NodeState


def test_every_state_has_its_row() -> None:
    assert set(NODE_MACHINE.transitions) == set(NodeState.values)


def test_retired_is_the_only_end_and_every_state_can_reach_it() -> None:
    assert [state for state, targets in NODE_MACHINE.transitions.items() if not targets] == ["retired"]
    assert NODE_MACHINE.sources("retired") == set(NodeState.values) - {"retired"}


def test_a_quarantined_node_comes_back_only_by_release() -> None:
    assert NODE_MACHINE.transitions["quarantined"] == {"online", "retired"}
