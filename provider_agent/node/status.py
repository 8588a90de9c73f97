"""What an agent is doing, read from its files: works whether or not it runs, and disturbs nothing."""

from __future__ import annotations

import json
from typing import Any

from provider_agent.config import DataFolder, load_config
from provider_agent.executors.process import processes_of
from provider_agent.journal import FACT_CHECK, Journal, LeaseEntry, read_links, since_fact
from provider_agent.node.self_test_result import SelfTestResult, load_self_test
from provider_agent.packaging.prefix import own_prefix
from provider_agent.system.agent_lock import is_agent_lock_held
from provider_agent.updating.update_request import update_facts, update_state


def read_status(folder: DataFolder) -> dict[str, Any]:
    """Node, contact and leases as plain data; raises NotEnrolled."""
    config = load_config(folder)
    is_running = is_agent_lock_held(folder.lock)
    last = _last_status(folder)
    result = load_self_test(folder)
    self_test = result.as_dict() if result is not None else None
    faults: dict[str, str] = last.get("faults", {}) if is_running else {}
    leases: list[dict[str, Any]] = []
    check: dict[str, Any] | None = None
    links: dict[str, dict[str, Any]] = {}
    if folder.journal.exists():
        journal = Journal(folder.journal)
        try:
            leases = [_lease(entry, journal) for entry in journal.load_leases()]
            links = read_links(journal)
            check = json.loads(journal.load_fact(FACT_CHECK) or "null")
        finally:
            journal.close()
    return {
        "name": config.name,
        "node_id": str(config.node_id),
        "server": config.server,
        "executor": config.executor,
        "data": str(folder.root),
        "running": is_running,
        "pid": last.get("pid") if is_running else None,
        "version": last.get("version", "") if is_running else "",
        "wanted_version": last.get("wanted_version", "") if is_running else "",
        "updates": {"mode": update_facts(folder).mode, **update_state(own_prefix())},
        "node_state": last.get("node_state", "unknown"),
        "last_contact": last,
        "last_check": check,  # protocol.CheckVerdict: each number measured beside the number needed
        "fabric": config.fabric,
        "links": links,  # peer -> what this side saw of the way to it; the verdict is the marketplace's
        "serving": _serving(last if is_running else {}),
        "health": _health(result, faults),
        "faults": faults,
        "fixes": result.fixes if result is not None and result.is_faulty else [],
        "self_test": self_test,
        "examination": self_test,  # deprecated: use `self_test`; leaves with the next version
        "loops": last.get("loops", []) if is_running else [],  # name, failures since the start, last error
        "leases": leases,
    }


def _health(result: SelfTestResult | None, faults: dict[str, str]) -> str:
    """In a line: what is wrong, or that nothing is."""
    wrong = [f"device {uuid}: {fault}" for uuid, fault in faults.items()]
    if result is not None and result.is_faulty:
        wrong.insert(0, result.summary)
    return "; ".join(wrong) or "good"


def _serving(last: dict[str, Any]) -> dict[str, Any]:
    """Why models are not served here (unknown without an agent), the gateways, and what was served to them."""
    names = {"why_not": "why_no_serving", "tunnels": "tunnels", "leases": "served"}
    empty: dict[str, Any] = {"why_not": None, "tunnels": [], "leases": []}
    return {name: last.get(own, empty[name]) for name, own in names.items()}


def _lease(entry: LeaseEntry, journal: Journal) -> dict[str, Any]:
    assignment = entry.assignment
    return {
        "lease_id": str(assignment.lease_id),
        "job_id": str(assignment.job_id),
        "job_name": assignment.job_name,
        "attempt_id": str(assignment.attempt_id),
        "since": journal.load_fact(since_fact(entry.lease_id)),
        "has_ended": entry.has_ended,
        "state": entry.state,
        "reason": entry.reason,
        "message": entry.message,
        "billable_ms": entry.billable_ms,
        "lease_until": entry.lease_until.isoformat(),
        "devices": assignment.device_uuids,
        "processes": [] if entry.has_ended else processes_of(assignment.lease_id),
    }


def _last_status(folder: DataFolder) -> dict[str, Any]:
    try:
        last: dict[str, Any] = json.loads(folder.status.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return last
