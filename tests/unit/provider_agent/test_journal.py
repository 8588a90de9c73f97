"""The journal: what was written is there again, and no secret ever is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from provider_agent.journal import ArtifactEntry, Journal, LeaseEntry
from provider_agent.protocol import Assignment, AttemptState, Program, Reason


def assignment(**changes: object) -> Assignment:
    values: dict[str, object] = {
        "node_id": uuid4(),
        "lease_id": uuid4(),
        "fence": 3,
        "attempt_id": uuid4(),
        "attempt_number": 1,
        "job_id": uuid4(),
        "job_name": "alice-job",
        "device_uuids": ["cpu-0"],
        "rate_usd_micros_per_hour": 1,
        "cap_usd_micros": 1,
        "program": Program(command=["true"]),
        "seconds_max": 60,
    }
    return Assignment.model_validate(values | changes)


def test_lease_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    entry = LeaseEntry(
        assignment(),
        lease_until=datetime.now(UTC),
        state=AttemptState.STOPPING,
        stop_reason=Reason.NODE_DRAINED,
        handle={"pid": 1},
        exit={"code": 0},
        billable_ms=5,
        log_sent=7,
    )
    Journal(tmp_path / "j").save_lease(entry)
    assert Journal(tmp_path / "j").load_leases() == [entry]


def test_journal_is_for_its_owner_alone(tmp_path: Path) -> None:
    Journal(tmp_path / "j")
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o600


def test_secret_is_refused(tmp_path: Path) -> None:
    entry = LeaseEntry(assignment(secrets={"TOKEN": "x"}), lease_until=datetime.now(UTC))
    with pytest.raises(ValueError, match="secrets"):
        Journal(tmp_path / "j").save_lease(entry)


def test_fence_never_falls_and_outlives_the_lease(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    entry = LeaseEntry(assignment(), lease_until=datetime.now(UTC))
    journal.save_lease(entry)
    journal.save_fence("cpu-0", 3)
    journal.save_fence("cpu-0", 2)
    journal.save_artifact(entry.lease_id, ArtifactEntry("step-1", "checkpoint", 1, 10))
    journal.forget_lease(entry.lease_id)
    assert journal.newest_fence("cpu-0") == 3
    assert journal.load_leases() == []
    assert journal.load_artifacts(entry.lease_id) == []


def test_broken_transaction_leaves_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    with pytest.raises(RuntimeError), journal.transaction():
        journal.save_fence("cpu-0", 9)
        raise RuntimeError
    assert journal.newest_fence("cpu-0") == 0
