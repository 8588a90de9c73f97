"""What an agent is doing, read from its files: works whether or not it runs, and disturbs nothing."""

from __future__ import annotations

import fcntl
import json
from typing import Any

from provider_agent.config import DataFolder, load_config
from provider_agent.executors.process import processes_of
from provider_agent.journal import Journal, LeaseEntry


def read_status(folder: DataFolder) -> dict[str, Any]:
    """Node, contact and leases as plain data; raises NotEnrolled."""
    config = load_config(folder)
    is_running = _is_locked(folder)
    said = _last_said(folder)
    leases = []
    if folder.journal.exists():
        journal = Journal(folder.journal)
        try:
            leases = [_lease(entry) for entry in journal.load_leases()]
        finally:
            journal.close()
    return {
        "name": config.name,
        "node_id": str(config.node_id),
        "server": config.server,
        "executor": config.executor,
        "data": str(folder.root),
        "running": is_running,
        "pid": said.get("pid") if is_running else None,
        "node_state": said.get("node_state", "unknown"),
        "last_contact": said,
        "leases": leases,
    }


def _lease(entry: LeaseEntry) -> dict[str, Any]:
    assignment = entry.assignment
    return {
        "lease_id": str(assignment.lease_id),
        "job_id": str(assignment.job_id),
        "job_name": assignment.job_name,
        "attempt_id": str(assignment.attempt_id),
        "state": entry.state,
        "reason": entry.reason,
        "message": entry.message,
        "billable_ms": entry.billable_ms,
        "lease_until": entry.lease_until.isoformat(),
        "devices": assignment.device_uuids,
        "processes": [] if entry.has_ended else processes_of(assignment.lease_id),
    }


def _is_locked(folder: DataFolder) -> bool:
    if not folder.lock.exists():
        return False
    with folder.lock.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _last_said(folder: DataFolder) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads(folder.status.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return said
