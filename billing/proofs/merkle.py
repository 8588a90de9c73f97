"""Merkle trees as OpenZeppelin's MerkleProof checks them: pairs are sorted before they are hashed, leaves hashed twice.

The same shape as https://github.com/OpenZeppelin/merkle-tree (StandardMerkleTree): leaves sorted by hash, a complete
binary tree in an array with the root first. No library of the Ethereum world but keccak is needed, so that customers
and providers can check a proof on their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

LEAVES_MAX: Final = 2**24
PROOF_MAX: Final = 64

WORD: Final = 32


@dataclass(frozen=True)
class MerkleTree:
    """The whole tree; `nodes[0]` is its root, the children of node i are 2i+1 and 2i+2."""

    nodes: tuple[bytes, ...]

    @property
    def root(self) -> bytes:
        return self.nodes[0]

    def proof(self, leaf: bytes) -> list[bytes]:
        """The siblings from the leaf up to the root; raises KeyError for a leaf that is not in the tree."""
        count = (len(self.nodes) + 1) // 2
        try:
            index = self.nodes.index(leaf, count - 1)
        except ValueError:
            raise KeyError("0x" + leaf.hex()) from None
        siblings = []
        while index > 0:
            siblings.append(self.nodes[index + 1 if index % 2 else index - 1])
            index = (index - 1) // 2
        return siblings


def build_tree(leaves: Sequence[bytes]) -> MerkleTree:
    """The tree over these leaves (each made by `leaf_hash`), in any order; raises ValueError for none or too many."""
    if not 1 <= len(leaves) <= LEAVES_MAX:
        raise ValueError(f"a tree has 1 to {LEAVES_MAX} leaves, not {len(leaves)}")
    if len(set(leaves)) != len(leaves):
        raise ValueError("a leaf is there twice")
    keccak = _keccak()
    nodes = [b""] * (2 * len(leaves) - 1)
    for place, leaf in enumerate(sorted(leaves)):
        nodes[len(nodes) - 1 - place] = leaf
    for index in range(len(nodes) - 1 - len(leaves), -1, -1):
        left, right = sorted((nodes[2 * index + 1], nodes[2 * index + 2]))
        nodes[index] = keccak(left + right)
    return MerkleTree(tuple(nodes))


def is_proven(leaf: bytes, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether the proof leads from the leaf to the root: what the contract asks."""
    if len(proof) > PROOF_MAX:
        return False
    keccak, node = _keccak(), leaf
    for sibling in proof:
        left, right = sorted((node, sibling))
        node = keccak(left + right)
    return node == root


def leaf_hash(*words: int | str | bytes) -> bytes:
    """keccak256(bytes.concat(keccak256(abi.encode(...)))) of static values: integers, addresses, 32 bytes."""
    keccak = _keccak()
    return keccak(keccak(b"".join(map(_word, words))))


def _word(value: int | str | bytes) -> bytes:
    """ABI's 32 bytes of one static value; an address is its 0x-hex."""
    if isinstance(value, int):
        return value.to_bytes(WORD, "big")
    data = bytes.fromhex(value.removeprefix("0x")) if isinstance(value, str) else value
    if len(data) not in {20, WORD}:
        raise ValueError(f"neither an address nor 32 bytes: {data.hex()}")
    return data.rjust(WORD, b"\0")


def _keccak() -> Callable[[bytes], bytes]:
    from eth_utils.crypto import keccak  # its import is slow, and most who import this package never need it

    return keccak
