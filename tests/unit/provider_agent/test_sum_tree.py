"""Merkle-sum trees: every leaf leads to the root and the sum, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.proofs.sum_tree import (
    LEAVES_MAX,
    PROOF_MAX,
    SUM_BYTES,
    SUM_MAX,
    Node,
    climb,
    join,
    leaf,
    root_of,
    sisters_of,
)

AMOUNTS = st.lists(st.integers(0, 2**256 - 1), min_size=1, max_size=70)


def leaves_of(amounts: list[int]) -> list[Node]:
    return [leaf(f"account {place} {amount}".encode(), amount) for place, amount in enumerate(amounts)]


@given(AMOUNTS)
def test_every_leaf_leads_to_the_root_whose_sum_is_that_of_all(amounts: list[int]) -> None:
    nodes = leaves_of(amounts)
    root = root_of(nodes)
    assert root.sum == sum(amounts)
    for place, node in enumerate(nodes):
        assert climb(node, place, len(nodes), sisters_of(nodes, place)) == root


@given(AMOUNTS, st.data())
def test_a_way_of_another_place_length_or_tree_leads_nowhere(amounts: list[int], data: Any) -> None:
    nodes = leaves_of(amounts)
    root, place = root_of(nodes), data.draw(st.integers(0, len(nodes) - 1))
    way = sisters_of(nodes, place)
    other = data.draw(
        st.integers(0, len(nodes) - 1).filter(lambda each: each != place) if len(nodes) > 1 else st.none()
    )
    if other is not None:
        assert not leads(nodes[place], other, len(nodes), way, root)
    assert not leads(nodes[place], place, len(nodes), [*way, nodes[place]], root)
    if way:
        assert not leads(nodes[place], place, len(nodes), way[:-1], root)
        assert not leads(nodes[place], place, len(nodes), list(reversed(way)), root) or way == list(reversed(way))


@given(AMOUNTS, st.data())
def test_any_flipped_bit_of_a_hash_and_any_other_amount_is_found(amounts: list[int], data: Any) -> None:
    nodes = leaves_of(amounts)
    root, place = root_of(nodes), data.draw(st.integers(0, len(nodes) - 1))
    way = [nodes[place], *sisters_of(nodes, place)]
    step, bit = data.draw(st.integers(0, len(way) - 1)), data.draw(st.integers(0, 255))
    flipped = bytearray(way[step].hash)
    flipped[bit // 8] ^= 1 << bit % 8
    by = data.draw(st.integers(1, 2**256))
    for changed in (Node(bytes(flipped), way[step].sum), Node(way[step].hash, way[step].sum + by)):
        other = [*way[:step], changed, *way[step + 1 :]]
        start, sisters = other[0], other[1:]
        if changed.hash == way[step].hash and len(way) == 1:
            continue  # a lone leaf is its own root; that its amount is in its hash, account_leaf sees to
        assert not leads(start, place, len(nodes), sisters, root)


@given(AMOUNTS, st.data())
def test_a_tree_with_an_account_left_out_added_or_moved_has_another_root(amounts: list[int], data: Any) -> None:
    nodes = leaves_of(amounts)
    root, place = root_of(nodes), data.draw(st.integers(0, len(nodes) - 1))
    if len(nodes) > 1:
        assert root_of(nodes[:place] + nodes[place + 1 :]).hash != root.hash
        assert root_of(nodes[1:] + nodes[:1]).hash != root.hash
    assert root_of([*nodes, nodes[place]]).hash != root.hash  # the last one twice is not the same tree: CVE-2012-2459


@given(st.integers(0, 600))
def test_chunks_of_a_power_of_two_are_nodes_of_the_tree_over_all(count: int) -> None:
    nodes = leaves_of(list(range(1, count + 2)))
    chunks = [nodes[start : start + 256] for start in range(0, len(nodes), 256)]
    roots = [root_of(chunk) for chunk in chunks]
    assert root_of(roots) == root_of(nodes)
    place = count * 7 % len(nodes)
    way = sisters_of(chunks[place // 256], place % 256) + sisters_of(roots, place // 256)
    assert way == sisters_of(nodes, place)


def test_a_parent_binds_the_sums_of_both_children_apart() -> None:
    """Maxwell's tree bound their total alone: then each of two owners is shown a sister of another size."""
    left, right = leaf(b"alice", 70), leaf(b"bob", 30)
    parent = join(left, right)
    assert parent.sum == 100
    for cheated in (join(left, Node(right.hash, 0)), join(Node(left.hash, 100), Node(right.hash, 0))):
        assert cheated.hash != parent.hash


def test_a_leaf_is_never_taken_for_a_node_above() -> None:
    """Whoever says a node's own bytes as a leaf's gets another hash: they begin differently."""
    left, right = leaf(b"alice", 1), leaf(b"bob", 2)
    preimage = left.hash + (1).to_bytes(SUM_BYTES, "big") + right.hash + (2).to_bytes(SUM_BYTES, "big")
    assert leaf(preimage, 3).hash != join(left, right).hash


@pytest.mark.parametrize("amount", [-1, SUM_MAX + 1, -(2**320)])
def test_no_sum_is_below_zero_or_wraps_around(amount: int) -> None:
    with pytest.raises(ValueError, match="a sum is from 0"):
        leaf(b"mallory", amount)
    with pytest.raises(ValueError, match="a sum is from 0"):
        join(Node(bytes(32), amount), Node(bytes(32), 0))
    with pytest.raises(ValueError, match="a sum is from 0"):
        join(Node(bytes(32), SUM_MAX), Node(bytes(32), 1))
    with pytest.raises(ValueError, match="a sum is from 0"):
        join(Node(bytes(32), 5), Node(bytes(32), -1))


def test_bounds_are_kept() -> None:
    node = leaf(b"a", 1)
    for index, leaves in ((0, 0), (1, 1), (-1, 1), (0, LEAVES_MAX + 1)):
        with pytest.raises(ValueError, match="there is no place"):
            climb(node, index, leaves, [])
    with pytest.raises(ValueError, match="at most"):
        climb(node, 0, LEAVES_MAX, [node] * (PROOF_MAX + 1))
    with pytest.raises(ValueError, match="a hash has 32 bytes"):
        climb(node, 0, 2, [Node(b"short", 1)])
    with pytest.raises(ValueError, match="1 to"):
        root_of([])
    with pytest.raises(IndexError):
        sisters_of([node], 1)
    assert 2**PROOF_MAX == LEAVES_MAX


def leads(start: Node, index: int, leaves: int, sisters: list[Node], root: Node) -> bool:
    try:
        return climb(start, index, leaves, sisters) == root
    except ValueError:
        return False
