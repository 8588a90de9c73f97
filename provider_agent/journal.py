"""The agent's memory on disk: written before acting, so that a restart knows what it had begun.

SQLite with synchronous=FULL: a committed row survives a power cut. The journal never holds a secret: assignments are
stored without them, and their values are in the lease's 0600 file until the lease ends.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from provider_agent.errors import JournalFailed
from provider_agent.protocol import ATTEMPT_ENDS, Assignment, AttemptState, Reason, ShippedKind, SignedReceipt

FACT_CHECK = "check"  # the verdict of the newest check
FACT_LINKS = "links"  # the newest look at each peer of the fabric
SCHEMA = """
CREATE TABLE IF NOT EXISTS lease (
    lease_id TEXT PRIMARY KEY, assignment TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, message TEXT NOT NULL,
    exit_code INTEGER, stop_reason TEXT, handle TEXT, exit TEXT, billable_ms INTEGER NOT NULL,
    lease_until TEXT NOT NULL, log_sent INTEGER NOT NULL, event_sent INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS receipt (
    lease_id TEXT NOT NULL, seq INTEGER NOT NULL, signed TEXT NOT NULL, digest TEXT NOT NULL,
    acknowledged INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (lease_id, seq));
CREATE TABLE IF NOT EXISTS artifact (
    lease_id TEXT NOT NULL, folder TEXT NOT NULL, kind TEXT NOT NULL, step INTEGER, billable_ms INTEGER NOT NULL,
    shipped INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (lease_id, folder));
CREATE TABLE IF NOT EXISTS fence (device_uuid TEXT PRIMARY KEY, fence INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@dataclass
class LeaseEntry:
    """One lease as this node has it. `assignment` is without secrets."""

    assignment: Assignment
    lease_until: datetime
    state: AttemptState = AttemptState.ASSIGNED
    reason: Reason | None = None
    message: str = ""
    exit_code: int | None = None
    stop_reason: Reason | None = None
    handle: dict[str, Any] | None = None  # what the executor needs to find the program again
    exit: dict[str, Any] | None = None  # how the program ended, once it did
    billable_ms: int = 0
    log_sent: int = 0
    event_sent: int = 0

    @property
    def lease_id(self) -> UUID:
        return self.assignment.lease_id

    @property
    def generation(self) -> int:
        """Of the gang."""
        return self.assignment.generation

    @property
    def has_ended(self) -> bool:
        """Whether the state is an end."""
        return self.state in ATTEMPT_ENDS


@dataclass(frozen=True)
class ArtifactEntry:
    """A folder to ship; `folder` is its name below the lease's folder of snapshots."""

    folder: str
    kind: ShippedKind
    step: int | None
    billable_ms: int
    shipped: bool = field(default=False)


class Journal:
    """Rows in, rows out; every write is durable when the call returns."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        path.chmod(0o600)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is written, or nothing."""
        self._write("BEGIN IMMEDIATE")
        try:
            yield
            self._write("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk may have rolled it back already
                self._db.execute("ROLLBACK")
            raise

    def _write(self, statement: str, values: tuple[object, ...] = ()) -> None:
        """Raises JournalFailed where the disk does not take it; then nothing was written."""
        try:
            self._db.execute(statement, values)
        except sqlite3.OperationalError as error:
            raise JournalFailed(f"{JournalFailed.message} ({error})") from error

    # --- leases

    def save_lease(self, entry: LeaseEntry) -> None:
        """Write one lease as it is now."""
        if entry.assignment.secrets:
            raise ValueError("an assignment is journaled without its secrets")
        self._write(
            "INSERT OR REPLACE INTO lease VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                str(entry.lease_id),
                entry.assignment.model_dump_json(),
                entry.state,
                entry.reason,
                entry.message,
                entry.exit_code,
                entry.stop_reason,
                json.dumps(entry.handle) if entry.handle is not None else None,
                json.dumps(entry.exit) if entry.exit is not None else None,
                entry.billable_ms,
                entry.lease_until.isoformat(),
                entry.log_sent,
                entry.event_sent,
            ),
        )

    def load_leases(self) -> list[LeaseEntry]:
        """Every lease that the server has not settled yet."""
        return [_lease_entry(row) for row in self._db.execute("SELECT * FROM lease ORDER BY rowid")]

    def save_offset(self, lease_id: UUID, stream: str, offset: int) -> None:
        """How many bytes of a stream the server has."""
        column = {"logs": "log_sent", "events": "event_sent"}[stream]
        self._write(f"UPDATE lease SET {column} = ? WHERE lease_id = ?", (offset, str(lease_id)))  # noqa: S608

    def forget_lease(self, lease_id: UUID) -> None:
        """Drop everything about a lease but the fences of its devices."""
        with self.transaction():
            for table in ("lease", "receipt", "artifact"):
                self._write(f"DELETE FROM {table} WHERE lease_id = ?", (str(lease_id),))  # noqa: S608
            self._write("DELETE FROM fact WHERE name = ?", (since_fact(lease_id),))

    # --- fences

    def newest_fence(self, device_uuid: str) -> int:
        """The highest fence ever accepted for a device; 0 before the first."""
        row = self._db.execute("SELECT fence FROM fence WHERE device_uuid = ?", (device_uuid,)).fetchone()
        return int(row["fence"]) if row else 0

    def save_fence(self, device_uuid: str, fence: int) -> None:
        """Remember a fence; it never falls."""
        self._write(
            "INSERT INTO fence VALUES (?,?) ON CONFLICT (device_uuid) DO UPDATE SET fence = MAX(fence, excluded.fence)",
            (device_uuid, fence),
        )

    # --- receipts

    def save_receipt(self, signed: SignedReceipt, digest: str) -> None:
        """Keep a receipt; a sequence is used once."""
        receipt = signed.receipt
        self._write(
            "INSERT INTO receipt (lease_id, seq, signed, digest) VALUES (?,?,?,?)",
            (str(receipt.lease_id), receipt.seq, signed.model_dump_json(), digest),
        )

    def newest_receipt(self, lease_id: UUID) -> tuple[SignedReceipt, str] | None:
        """The last receipt made, with its digest."""
        row = self._db.execute(
            "SELECT signed, digest FROM receipt WHERE lease_id = ? ORDER BY seq DESC LIMIT 1", (str(lease_id),)
        ).fetchone()
        return (SignedReceipt.model_validate_json(row["signed"]), row["digest"]) if row else None

    def unacknowledged_receipts(self, lease_id: UUID, limit: int) -> list[SignedReceipt]:
        """The oldest receipts that the server has not accepted yet, in order."""
        rows = self._db.execute(
            "SELECT signed FROM receipt WHERE lease_id = ? AND acknowledged = 0 ORDER BY seq LIMIT ?",
            (str(lease_id), limit),
        )
        return [SignedReceipt.model_validate_json(row["signed"]) for row in rows]

    def acknowledge_receipts(self, lease_id: UUID, seq: int) -> None:
        """The server has every receipt up to `seq`."""
        self._write("UPDATE receipt SET acknowledged = 1 WHERE lease_id = ? AND seq <= ?", (str(lease_id), seq))

    # --- artifacts

    def save_artifact(self, lease_id: UUID, artifact: ArtifactEntry) -> None:
        """Write one artifact to be shipped, or that it was."""
        self._write(
            "INSERT OR REPLACE INTO artifact VALUES (?,?,?,?,?,?)",
            (str(lease_id), artifact.folder, artifact.kind, artifact.step, artifact.billable_ms, artifact.shipped),
        )

    def load_artifacts(self, lease_id: UUID) -> list[ArtifactEntry]:
        """The artifacts of a lease, oldest first."""
        rows = self._db.execute("SELECT * FROM artifact WHERE lease_id = ? ORDER BY rowid", (str(lease_id),))
        return [
            ArtifactEntry(row["folder"], row["kind"], row["step"], row["billable_ms"], bool(row["shipped"]))
            for row in rows
        ]

    def forget_artifacts(self, lease_id: UUID, folders: Iterable[str]) -> None:
        """Drop these artifacts of a lease."""
        with self.transaction():
            for folder in folders:
                self._write("DELETE FROM artifact WHERE lease_id = ? AND folder = ?", (str(lease_id), folder))

    # --- facts

    def save_fact(self, name: str, value: str) -> None:
        """Remember one named value."""
        self._write("INSERT OR REPLACE INTO fact VALUES (?,?)", (name, value))

    def load_fact(self, name: str) -> str | None:
        """A named value, or None."""
        row = self._db.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        return str(row["value"]) if row else None


def since_fact(lease_id: UUID) -> str:
    """The name of the fact with the time at which a lease was accepted."""
    return f"since {lease_id}"


def _lease_entry(row: sqlite3.Row) -> LeaseEntry:
    return LeaseEntry(
        assignment=Assignment.model_validate_json(row["assignment"]),
        lease_until=datetime.fromisoformat(row["lease_until"]),
        state=AttemptState(row["state"]),
        reason=Reason(row["reason"]) if row["reason"] else None,
        message=row["message"],
        exit_code=row["exit_code"],
        stop_reason=Reason(row["stop_reason"]) if row["stop_reason"] else None,
        handle=json.loads(row["handle"]) if row["handle"] else None,
        exit=json.loads(row["exit"]) if row["exit"] else None,
        billable_ms=row["billable_ms"],
        log_sent=row["log_sent"],
        event_sent=row["event_sent"],
    )


def read_links(journal: Journal) -> dict[str, dict[str, Any]]:
    """Peer's name -> what this side saw of the way to it, newest last; nothing where that is damaged."""
    try:
        found = json.loads(journal.load_fact(FACT_LINKS) or "{}")
    except ValueError:
        return {}
    return {name: seen for name, seen in found.items() if isinstance(seen, dict)} if isinstance(found, dict) else {}
