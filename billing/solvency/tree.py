"""The leaves of one asset, in the order of a report's secret, kept in chunks so that a proof costs two small trees.

    leaf   account's id 16 bytes | amount 32 bytes | hash 32 bytes
    chunk  256 leaves (the last: fewer) and the node above them; a proof is a way in the chunk, then one over the chunks

All leaves of one owner are neighbours: few chunks have to be read for it, and most sisters are its own. The order, like
the salts, follows from a secret that is new in every report, so neither shows which account was which before.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from billing.errors import SolvencyUnprovable
from billing.fields import AMOUNT_MAX
from billing.proofs import solvency, sum_tree
from billing.proofs.sum_tree import Node

LEAVES_PER_CHUNK: Final = 256  # a power of two: then a chunk is a node of the tree over all leaves
LEAVES_MAX: Final = 4_000_000  # of one asset: what a build may keep in memory
OWNER_KEY_BYTES: Final = 16
ID_BYTES: Final = 16
AMOUNT_BYTES: Final = 32
LEAF_BYTES: Final = ID_BYTES + AMOUNT_BYTES + sum_tree.HASH_BYTES


@dataclass(frozen=True)
class Owed:
    """One account that is owed something, by its name."""

    account_id: UUID
    kind: str
    owner_id: UUID
    job_id: UUID | None
    amount: int


@dataclass(frozen=True)
class Chunk:
    """Some leaves side by side, and the node above them."""

    first_owner: bytes
    node: Node
    leaves: bytes


@dataclass(frozen=True)
class StoredLeaf:
    """One leaf as a chunk keeps it."""

    account_id: UUID
    node: Node


def build(asset: str, accounts: Sequence[Owed], secret: bytes) -> list[Chunk]:
    """The tree over these accounts, deterministic in them and the secret. Raises SolvencyUnprovable."""
    if len(accounts) > LEAVES_MAX:
        raise SolvencyUnprovable(why=f"{asset} has more than {LEAVES_MAX} accounts")
    leaves = sorted(_leaf(asset, account, secret) for account in accounts)
    return [_chunk(leaves[start : start + LEAVES_PER_CHUNK]) for start in range(0, len(leaves), LEAVES_PER_CHUNK)]


def salt_of(secret: bytes, account_id: UUID) -> bytes:
    """What hides an account's leaf from everybody who does not know it."""
    return hmac.digest(secret, b"salt" + account_id.bytes, "sha256")


def owner_key(secret: bytes, owner_id: UUID) -> bytes:
    """By which an owner's leaves are ordered."""
    return hmac.digest(secret, b"owner" + owner_id.bytes, "sha256")[:OWNER_KEY_BYTES]


def unpack(leaves: bytes) -> list[StoredLeaf]:
    """The leaves of a chunk."""
    found = []
    for start in range(0, len(leaves), LEAF_BYTES):
        record = leaves[start : start + LEAF_BYTES]
        amount = int.from_bytes(record[ID_BYTES : ID_BYTES + AMOUNT_BYTES], "big")
        found.append(StoredLeaf(UUID(bytes=record[:ID_BYTES]), Node(record[ID_BYTES + AMOUNT_BYTES :], amount)))
    return found


def chunks_of_owner(first_owners: Sequence[bytes], key: bytes) -> list[int]:
    """In which chunks an owner's leaves can be: those that begin at or before it, up to the first that begins after."""
    begins_before = sum(first < key for first in first_owners)
    begins_with = sum(first == key for first in first_owners)
    return list(range(max(0, begins_before - 1), begins_before + begins_with))


def _leaf(asset: str, account: Owed, secret: bytes) -> tuple[bytes, bytes, UUID, int]:
    if not 0 < account.amount <= AMOUNT_MAX:
        raise SolvencyUnprovable(why=f"the account {account.account_id} holds {account.amount} of {asset}")
    node = solvency.account_leaf(
        asset,
        account.kind,
        account.owner_id,
        account.job_id,
        amount=account.amount,
        salt=salt_of(secret, account.account_id),
    )
    return owner_key(secret, account.owner_id), node.hash, account.account_id, account.amount


def _chunk(leaves: Sequence[tuple[bytes, bytes, UUID, int]]) -> Chunk:
    packed = b"".join(
        account_id.bytes + amount.to_bytes(AMOUNT_BYTES, "big") + digest for _, digest, account_id, amount in leaves
    )
    return Chunk(leaves[0][0], sum_tree.root_of([Node(digest, amount) for _, digest, _, amount in leaves]), packed)
