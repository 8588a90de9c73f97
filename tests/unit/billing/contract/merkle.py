"""Merkle trees as the contract reads them: sorted pairs, leaves hashed twice."""

from __future__ import annotations

from eth_abi.abi import encode
from web3 import Web3


def provider_leaf(provider: str) -> bytes:
    """The leaf of a provider that a customer allows."""
    return twice(encode(["address"], [provider]))


def payout_leaf(chain_id: int, escrow: str, token: str, account: str, cumulative: int) -> bytes:
    """The leaf of what an account has been promised since the beginning."""
    types = ["uint256", "address", "address", "address", "uint256"]
    return twice(encode(types, [chain_id, escrow, token, account, cumulative]))


def twice(data: bytes) -> bytes:
    """Keccak of Keccak: no inner node can pass for a leaf."""
    return keccak(keccak(data))


def keccak(data: bytes) -> bytes:
    """Keccak-256."""
    return bytes(Web3.keccak(data))


def pair(left: bytes, right: bytes) -> bytes:
    """The node above two."""
    return keccak(min(left, right) + max(left, right))


def levels(leaves: list[bytes]) -> list[list[bytes]]:
    """All levels of the tree, leaves first; an odd node is carried up as it is."""
    made = [sorted(leaves)]
    while len(made[-1]) > 1:
        last = made[-1]
        made.append([pair(*last[i : i + 2]) if i + 1 < len(last) else last[i] for i in range(0, len(last), 2)])
    return made


def root(leaves: list[bytes]) -> bytes:
    """The tree's root."""
    return levels(leaves)[-1][0]


def proof(leaves: list[bytes], leaf: bytes) -> list[bytes]:
    """The siblings from a leaf up to the root."""
    return path(levels(leaves), leaf)


def path(tree: list[list[bytes]], leaf: bytes) -> list[bytes]:
    """The same in a tree that is there already."""
    found = []
    at = tree[0].index(leaf)
    for level in tree[:-1]:
        beside = at ^ 1
        if beside < len(level):
            found.append(level[beside])
        at //= 2
    return found
