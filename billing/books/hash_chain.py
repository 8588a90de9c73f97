"""The hash chain over all transfers, and the Merkle root that commits to each day.

    hash(n) = SHA-256(canonical bytes of transfer n, with hash(n-1) among them);   hash(0) = 64 zeros

The chain follows `seq`. Numbers are drawn when a row is inserted and rows appear when their transaction commits, so a
lower number may appear after a higher one; step 1 below is what makes the order final.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, timedelta
from typing import Final

from django.db import connection, transaction
from django.db.models import Max

from billing import functions
from billing.models import DailyRoot, Transfer
from marketplace.foundation import clock

GENESIS: Final = "0" * 64
TRANSFERS_PER_BATCH_MAX: Final = 5_000  # entered in one transaction
BATCHES_PER_CALL_MAX: Final = 200
LOCK_WAIT_MS: Final = 2_000  # a writer that is slower delays the chain, never the other writers for long
CHAIN_LOCK: Final = 0x50_55_4B_53  # advisory: one writer at a time

_WRITE_HASHES = """
    UPDATE billing_transfer t SET prev_hash = s.prev_hash, hash = s.hash
    FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS s (seq, prev_hash, hash) WHERE t.seq = s.seq
"""


def chain_transfers() -> int:
    """Extend the hash chain over every transfer that is final; how many that was. Safe to call at any time, twice."""
    # 1. A lock that waits for every writer in flight: what they drew is now either there or never will be.
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
            cursor.execute("SELECT billing_wait_for_writers()")
        until = Transfer.objects.aggregate(newest=Max("seq"))["newest"] or 0
    # 2. Chain them, a batch a transaction; 3. roll up the accounts that have no live sum.
    chained = 0
    for _ in range(BATCHES_PER_CALL_MAX):
        batch = _chain_batch(until)
        chained += batch
        if batch < TRANSFERS_PER_BATCH_MAX:
            break
    write_daily_root()
    return chained


def write_daily_root() -> DailyRoot | None:
    """Once a day is over: one row that commits to all transfers sealed since the last root, up to the day's newest."""
    midnight = clock.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    day = (midnight - timedelta(days=1)).date()
    with transaction.atomic():
        if not _is_only_writer():
            return None
        last = DailyRoot.objects.order_by("-last_seq").first()
        if last is not None and last.day >= day:
            return None
        since = Transfer.objects.filter(hash__isnull=False, seq__gt=last.last_seq if last else 0)
        until = since.filter(created_at__lt=midnight).aggregate(newest=Max("seq"))["newest"] or 0
        tree, first = MerkleTree(), 0
        found = since.filter(seq__lte=until).order_by("seq").values_list("seq", "hash")
        for seq, value in found.iterator(chunk_size=TRANSFERS_PER_BATCH_MAX):
            first = first or seq
            tree.add(str(value))
        if not tree.leaves:
            return None
        return DailyRoot.objects.create(day=day, first_seq=first, last_seq=until, transfers=tree.leaves, root=tree.root)


def transfer_hash(transfer: Transfer, prev_hash: str) -> str:
    """SHA-256 over all of a transfer's fields, in a fixed order, and the hash before it."""
    fields = (
        "souk-transfer-v1",
        prev_hash,
        transfer.seq,
        transfer.pk,
        transfer.group_id,
        transfer.asset_id,
        transfer.debit_id,
        transfer.credit_id,
        transfer.amount,
        transfer.mode,
        transfer.pending_id or "",
        transfer.code,
        transfer.job_id or "",
        transfer.effective_at.astimezone(UTC).isoformat(timespec="microseconds"),
        transfer.created_at.astimezone(UTC).isoformat(timespec="microseconds"),
        transfer.external_ref,  # last: the only one that may hold a line break
    )
    return hashlib.sha256("\n".join(map(str, fields)).encode()).hexdigest()


class MerkleTree:
    """The binary tree over hashes that come one by one (RFC 6962, section 2.1): it keeps one node a level."""

    def __init__(self) -> None:
        self.leaves = 0
        self._whole: list[tuple[int, bytes]] = []  # (leaves under it, node), ever smaller

    def add(self, value: str) -> None:
        """One more leaf; leaves and nodes are distinguished by a prefix."""
        size, node = 1, hashlib.sha256(b"\0" + bytes.fromhex(value)).digest()
        while self._whole and self._whole[-1][0] == size:
            node = hashlib.sha256(b"\1" + self._whole.pop()[1] + node).digest()
            size *= 2
        self._whole.append((size, node))
        self.leaves += 1

    @property
    def root(self) -> str:
        """Of the leaves so far."""
        if not self._whole:
            raise ValueError("a tree without leaves has no root")
        *rest, (_, node) = self._whole
        for _, left in reversed(rest):
            node = hashlib.sha256(b"\1" + left + node).digest()
        return node.hex()


def merkle_root(hashes: Iterable[str]) -> str:
    """Root of the tree over these."""
    tree = MerkleTree()
    for value in hashes:
        tree.add(value)
    return tree.root


def _chain_batch(until: int) -> int:
    with transaction.atomic():
        if not _is_only_writer():
            return 0
        newest = Transfer.objects.filter(hash__isnull=False).order_by("-seq").first()
        # All up to the newest are sealed. An index over unsealed transfers would be written to at every seal.
        since = Transfer.objects.unchained().filter(seq__gt=newest.seq if newest else 0, seq__lte=until)
        rows = list(since.order_by("seq")[:TRANSFERS_PER_BATCH_MAX])
        if rows:
            _write_chain(rows, newest.hash if newest and newest.hash else GENESIS)
            functions.call("billing_roll_up", rows[-1].seq)
        return len(rows)


def _write_chain(rows: Iterable[Transfer], prev_hash: str) -> None:
    seqs, befores, hashes = [], [], []
    for row in rows:
        seqs.append(row.seq)
        befores.append(prev_hash)
        prev_hash = transfer_hash(row, prev_hash)
        hashes.append(prev_hash)
    with connection.cursor() as cursor:
        cursor.execute(_WRITE_HASHES, [seqs, befores, hashes])


def _is_only_writer() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [CHAIN_LOCK])
        return bool(cursor.fetchone()[0])
