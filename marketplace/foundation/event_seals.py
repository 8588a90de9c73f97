"""The hash chain over all events: who rewrites, removes or inserts one that is sealed breaks it.

    digest(n) = SHA-256(the digests of the events of link n, by id)
    hash(n)   = SHA-256(hash(n-1), the link's last id, its number of events, digest(n));   hash(0) = 64 zeros

Ids are drawn when a row is inserted and rows appear when their transaction commits, so a lower id may appear after a
higher one. Only events older than SEALED_AFTER are sealed, and only while no transaction that writes is older than
that: nothing can appear among them any more, and no writer has to wait for the sealing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, Final

from django.db import connection, transaction

from marketplace.foundation import clock
from marketplace.foundation.models import EventSeal

GENESIS: Final = "0" * 64
SEALED_AFTER: Final = timedelta(minutes=10)
CLOCKS_APART: Final = timedelta(minutes=1)  # of the servers that write events
EVENTS_PER_SEAL_MAX: Final = 5_000
SEALS_PER_CALL_MAX: Final = 200
BEFORE_ALL: Final = -(2**63)  # the least id there can be: nothing is inserted before the first link either
SEAL_LOCK: Final = 0x53_4F_55_45  # advisory: one writer at a time

_ROWS: Final = """
    SELECT id, created_at, foundation_event_digest(e) FROM foundation_event e WHERE id > %s ORDER BY id LIMIT %s
"""
_COVERED: Final = """
    SELECT foundation_event_digest(e) FROM foundation_event e WHERE id > %s AND id <= %s ORDER BY id
"""
_OLDEST_WRITER: Final = """
    SELECT min(xact_start) FROM pg_stat_activity
    WHERE backend_xid IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True)
class BrokenSeal:
    """A link of the chain that does not hold, and why."""

    last_id: int
    message: str


def seal_events() -> int:
    """Extend the chain over every event that is old enough; how many that was. Safe to call at any time, twice."""
    until = clock.now() - SEALED_AFTER
    sealed = 0
    for _ in range(SEALS_PER_CALL_MAX):
        events = _seal_some(until)
        sealed += events
        if events < EVENTS_PER_SEAL_MAX:
            break
    return sealed


def broken_seals() -> Iterator[BrokenSeal]:
    """Every link that does not hold, in order. Recomputes each event's digest from its columns."""
    before, covered = GENESIS, BEFORE_ALL
    for seal in EventSeal.objects.order_by("last_id").iterator(chunk_size=EVENTS_PER_SEAL_MAX):
        if seal.prev_hash != before:
            yield BrokenSeal(seal.last_id, "does not follow the seal before it: one was removed, inserted or made anew")
        if seal.hash != _hash_of(seal.prev_hash, seal.last_id, seal.events, seal.digest):
            yield BrokenSeal(seal.last_id, "does not say what it said when it was made")
        digests = [row[0] for row in _select(_COVERED, covered, seal.last_id)]
        if (len(digests), _digest_of(digests)) != (seal.events, seal.digest):
            yield BrokenSeal(
                seal.last_id,
                f"{seal.events} events up to {seal.last_id} were sealed, {len(digests)} are there: one was rewritten, "
                "removed or inserted",
            )
        before, covered = seal.hash, seal.last_id


def newest_hash() -> str:
    """The head of the chain: who knows it can tell whether anything that it covers was rewritten."""
    newest = EventSeal.objects.order_by("-last_id").first()
    return newest.hash if newest else GENESIS


def _seal_some(until: datetime) -> int:
    with transaction.atomic():
        [(is_only_writer,)] = _select("SELECT pg_try_advisory_xact_lock(%s)", SEAL_LOCK)
        [(oldest,)] = _select(_OLDEST_WRITER)
        if not is_only_writer or (oldest is not None and oldest < until + CLOCKS_APART):
            return 0
        newest = EventSeal.objects.order_by("-last_id").first()
        rows = _select(_ROWS, newest.last_id if newest else BEFORE_ALL, EVENTS_PER_SEAL_MAX)
        rows = list(takewhile(lambda row: row[1] < until, rows))
        if rows:
            prev_hash, last_id = newest.hash if newest else GENESIS, rows[-1][0]
            digest = _digest_of(row[2] for row in rows)
            EventSeal.objects.create(
                last_id=last_id,
                events=len(rows),
                digest=digest,
                prev_hash=prev_hash,
                hash=_hash_of(prev_hash, last_id, len(rows), digest),
            )
        return len(rows)


def _digest_of(digests: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _hash_of(prev_hash: str, last_id: int, events: int, digest: str) -> str:
    fields = ("souk-events-v1", prev_hash, last_id, events, digest)
    return hashlib.sha256("\n".join(map(str, fields)).encode()).hexdigest()


def _select(sql: str, *arguments: int) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        return list(cursor.fetchall())
