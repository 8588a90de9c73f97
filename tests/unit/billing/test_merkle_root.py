"""The Merkle root that publishes a day."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.books.hash_chain import MerkleTree, merkle_root

hashes = st.lists(st.binary(min_size=32, max_size=32).map(bytes.hex), min_size=1, max_size=40, unique=True)


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def test_root_of_three_is_as_the_standard_draws_it() -> None:
    one, two, three = (bytes([n]) * 32 for n in (1, 2, 3))
    left = sha256(b"\1" + sha256(b"\0" + one) + sha256(b"\0" + two))
    expected = sha256(b"\1" + left + sha256(b"\0" + three))
    assert merkle_root([one.hex(), two.hex(), three.hex()]) == expected.hex()


def root_of(leaves: list[bytes]) -> bytes:
    """RFC 6962, section 2.1, as it is defined: split at the largest power of two below the count."""
    if len(leaves) == 1:
        return sha256(b"\0" + leaves[0])
    left = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\1" + root_of(leaves[:left]) + root_of(leaves[left:]))


@given(hashes)
def test_root_is_the_standards(leaves: list[str]) -> None:
    tree = MerkleTree()
    for number, leaf in enumerate(leaves, 1):
        tree.add(leaf)
        assert tree.leaves == number
    assert tree.root == merkle_root(leaves) == root_of([bytes.fromhex(leaf) for leaf in leaves]).hex()


def test_nothing_has_no_root() -> None:
    with pytest.raises(ValueError, match="no root"):
        merkle_root([])


@given(hashes, st.data())
def test_changing_any_leaf_changes_the_root(leaves: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(min_value=0, max_value=len(leaves) - 1))
    flipped = f"{int(leaves[at], 16) ^ 1:064x}"
    assert merkle_root([*leaves[:at], flipped, *leaves[at + 1 :]]) != merkle_root(leaves)


@given(hashes)
def test_leaving_a_leaf_out_changes_the_root(leaves: list[str]) -> None:
    if len(leaves) > 1:
        assert merkle_root(leaves[:-1]) != merkle_root(leaves)
