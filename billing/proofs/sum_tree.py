"""Merkle-sum trees: a root commits to every leaf and to the sum of all, and each leaf's owner checks its own way up.

    node = (hash, sum)      join(left, right) = (SHA-256(1 | left.hash | left.sum | right.hash | right.sum), both sums)

A parent binds the sums of both children apart. Where it binds their total alone, as Maxwell's first tree did, each
owner can be shown another sister, and a parent may be max(left, right): Chalkias, Chatzigiannis and Ji, "Broken
Proofs of Solvency in Blockchain Custodial Wallets and Exchanges" (https://eprint.iacr.org/2022/043); Hu, Zhang and
Guo (https://eprint.iacr.org/2018/1139). The shape is that of RFC 6962: no node is ever doubled to fill a level, leaves
and nodes are distinguished by their first byte, and which side a sister is on follows from the leaf's place. Sums are
never below zero, or one account could be hidden behind another that owes. Only hashlib is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

LEAVES_MAX: Final = 2**24
PROOF_MAX: Final = 24  # sisters from a leaf to the root: log2 of LEAVES_MAX
SUM_BYTES: Final = 40
SUM_MAX: Final = 2 ** (8 * SUM_BYTES) - 1  # wider than any account's 256 bits, so that no sum of them wraps around
HASH_BYTES: Final = 32

_LEAF, _NODE = b"\0", b"\1"


class Node(NamedTuple):
    """A leaf, or everything below a place of the tree."""

    hash: bytes
    sum: int


def leaf(content: bytes, amount: int) -> Node:
    """A leaf of these bytes, with the amount among them; raises ValueError for an amount that is none."""
    _sum_bytes(amount)
    return Node(hashlib.sha256(_LEAF + content).digest(), amount)


def join(left: Node, right: Node) -> Node:
    """The parent of two; raises ValueError for a sum that is below zero or too large, and for what is no hash."""
    total = left.sum + right.sum
    _sum_bytes(total)
    content = _hash_bytes(left) + _sum_bytes(left.sum) + _hash_bytes(right) + _sum_bytes(right.sum)
    return Node(hashlib.sha256(_NODE + content).digest(), total)


def root_of(nodes: Sequence[Node]) -> Node:
    """The root over these, from left to right; raises ValueError for none or too many."""
    if not 1 <= len(nodes) <= LEAVES_MAX:
        raise ValueError(f"a tree has 1 to {LEAVES_MAX} leaves, not {len(nodes)}")
    level = list(nodes)
    while len(level) > 1:
        level = _parents(level)
    return level[0]


def sisters_of(nodes: Sequence[Node], index: int) -> list[Node]:
    """What leads from the node at this place to the root, nearest first; raises IndexError where there is no node."""
    if not 0 <= index < len(nodes):
        raise IndexError(index)
    found, level = [], list(nodes)
    while len(level) > 1:
        if (sister := index ^ 1) < len(level):  # else it stands alone at the end, and moves up as it is
            found.append(level[sister])
        level, index = _parents(level), index // 2
    return found


def climb(start: Node, index: int, leaves: int, sisters: Sequence[Node]) -> Node:
    """The root to which a leaf at this place among so many leads; raises ValueError where these sisters cannot be it.

    RFC 9162, section 2.1.3.2: the place alone determines on which side each sister is.
    """
    if not 1 <= leaves <= LEAVES_MAX or not 0 <= index < leaves:
        raise ValueError(f"there is no place {index} among {leaves} leaves")
    if len(sisters) > PROOF_MAX:
        raise ValueError(f"a proof has at most {PROOF_MAX} steps, not {len(sisters)}")
    node, last, used = start, leaves - 1, 0
    while last:
        if index % 2 or index < last:
            if used == len(sisters):
                raise ValueError("the proof ends before the root")
            sister = sisters[used]
            node = join(sister, node) if index % 2 else join(node, sister)
            used += 1
        index, last = index // 2, last // 2
    if used != len(sisters):
        raise ValueError("the proof goes on beyond the root")
    return node


def _parents(level: list[Node]) -> list[Node]:
    pairs = [join(level[place], level[place + 1]) for place in range(0, len(level) - 1, 2)]
    return pairs + level[2 * len(pairs) :]


def _sum_bytes(amount: int) -> bytes:
    if not 0 <= amount <= SUM_MAX:
        raise ValueError(f"a sum is from 0 to 2**{8 * SUM_BYTES} - 1, not {amount}")
    return amount.to_bytes(SUM_BYTES, "big")


def _hash_bytes(node: Node) -> bytes:
    if len(node.hash) != HASH_BYTES:
        raise ValueError(f"a hash has {HASH_BYTES} bytes, not {len(node.hash)}")
    return node.hash
