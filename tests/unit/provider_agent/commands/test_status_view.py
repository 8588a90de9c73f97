"""The status as a person reads it: a line a fact, and none for what there is nothing to say of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from provider_agent.commands.status_view import _block, format_seconds, serving_lines, status_lines, update_lines

NO_UPDATES = {"mode": "auto", "trial": None, "problem": None, "last_update": None, "last_rollback": None}
AT = "2026-11-22T10:30:00+00:00"


def status(**changes: Any) -> dict[str, Any]:
    """What node/status.py reads of a node that was enrolled and never started."""
    return {
        "name": "bob-1",
        "node_id": "0193c2f6",
        "server": "https://souk.example",
        "executor": "process",
        "running": False,
        "pid": None,
        "version": "",
        "wanted_version": "",
        "updates": NO_UPDATES,
        "node_state": "unknown",
        "last_contact": {},
        "last_check": None,
        "links": {},
        "serving": {"why_not": None, "tunnels": [], "leases": []},
        "health": "good",
        "fixes": [],
        "loops": [],
        "leases": [],
    } | changes


def test_a_node_that_never_ran_has_four_lines() -> None:
    assert status_lines(status()) == [
        "bob-1  node 0193c2f6  of https://souk.example",
        "agent: not running; node: unknown; executor: process",
        "health: good",
        "version: unknown (updates itself)",
    ]


def test_a_running_agent_shows_its_last_contact_error_and_fixes() -> None:
    contact = {
        "contact_at": (datetime.now(UTC) - timedelta(hours=2, minutes=30)).isoformat(),
        "last_error": "server_busy",
    }
    lines = status_lines(status(running=True, pid=7, last_contact=contact, fixes=["apt install docker.io"]))
    assert lines[1] == "agent: running (pid 7); node: unknown; executor: process; last beat 2 h 30 min ago"
    assert "last error: server_busy" in lines
    assert lines[-1] == "fix: apt install docker.io"


def test_a_beat_without_a_time_is_shown_as_unknown() -> None:
    assert status_lines(status(last_contact={"node_state": "online"}))[1].endswith("last beat ? ago")


def test_a_lease_shows_its_state_reason_and_billed_time() -> None:
    lease = {
        "lease_id": "0193",
        "state": "failed",
        "reason": "out_of_memory",
        "job_name": "alice-job",
        "since": AT,
        "billable_ms": 1500,
    }
    waiting = lease | {"state": "preparing", "reason": "", "since": None, "billable_ms": 0}
    assert status_lines(status(leases=[lease, waiting]))[-2:] == [
        "lease 0193  failed (out_of_memory)  alice-job  since 2026-11-22 10:30 UTC  1.5 s",
        "lease 0193  preparing  alice-job  0.0 s",
    ]


def test_only_a_loop_that_failed_is_shown() -> None:
    loops = [
        {"name": "heartbeat", "failures": 0, "last_error": ""},
        {"name": "receipts", "failures": 3, "last_error": "disk is full"},
    ]
    assert status_lines(status(loops=loops))[4:] == [
        "loop receipts: failed 3 times and was restarted; last error: disk is full"
    ]


def test_a_link_shows_its_slower_direction_or_why_it_was_not_reached() -> None:
    seen = {
        "is_reached": True,
        "address": "10.0.0.2",
        "at": (datetime.now(UTC) - timedelta(hours=2, minutes=30)).isoformat(),
        "round_trip_us": 250,
        "sent_bytes_per_second": 2_500_000_000,
        "received_bytes_per_second": 1_250_000_000,
    }
    links = {
        "carol": seen,
        "dave": seen | {"round_trip_us": None, "sent_bytes_per_second": None, "received_bytes_per_second": None},
        "erin": seen | {"is_reached": False, "why": "refused"},
    }
    assert status_lines(status(links=links))[4:] == [
        "link to carol (10.0.0.2): 0.25 ms, 10 Gbit/s; 2 h 30 min ago",
        "link to dave (10.0.0.2): 0 Gbit/s; 2 h 30 min ago",
        "link to erin (10.0.0.2): not reached: refused; 2 h 30 min ago",
    ]


def test_an_update_on_trial_shows_its_problem_and_the_last_rollback() -> None:
    updates = {
        "mode": "manual",
        "trial": "0.3.0",
        "problem": {"at": AT, "reason": "The disk is full."},
        "last_update": {"version": "0.2.0", "outcome": "updated", "at": AT},
        "last_rollback": {"version": "0.1.9", "reason": "it did not check in", "at": AT},
    }
    assert update_lines(status(version="0.2.0", wanted_version="0.3.0", updates=updates)) == [
        "version: 0.2.0 (updates by hand); wanted: 0.3.0; on trial: 0.3.0",
        "last try, 2026-11-22T10:30 UTC: The disk is full.",
        "last update: 0.2.0 updated 2026-11-22T10:30 UTC",
        "last rollback: 0.1.9 2026-11-22T10:30 UTC: it did not check in",
    ]


def test_the_version_that_is_wanted_and_runs_is_shown_once() -> None:
    found = status(version="0.2.0", wanted_version="0.2.0", updates=NO_UPDATES | {"mode": "none"})
    assert update_lines(found) == ["version: 0.2.0 (is not updated by the marketplace)"]


def test_a_tunnel_is_up_down_with_its_cause_or_being_dialled() -> None:
    up = {"gateway": "g1", "why": "", "is_up": True, "up_seconds": 61, "round_trip_ms": 12.34, "leases": 2}
    serving = {
        "tunnels": [
            up,
            up | {"round_trip_ms": None},
            up | {"is_up": False, "why": "refused"},
            up | {"is_up": False},
        ],
        "leases": [],
    }
    assert serving_lines(serving) == [
        "tunnel to g1: up 1 min 1 s, 12.3 ms; 2 replica(s)",
        "tunnel to g1: up 1 min 1 s; 2 replica(s)",
        "tunnel to g1: not there: refused; 2 replica(s)",
        "tunnel to g1: is being dialled; 2 replica(s)",
    ]


def test_failed_requests_of_a_served_lease_are_shown_only_if_any() -> None:
    lease = {"lease_id": "0193", "requests": 1200, "failed": 0, "in_flight": 3, "input_tokens": 5, "output_tokens": 9}
    assert serving_lines({"tunnels": [], "leases": [lease, lease | {"failed": 4}]}) == [
        "serves lease 0193: 1,200 requests, 3 open; 5 tokens in, 9 out",
        "serves lease 0193: 1,200 requests (4 failed), 3 open; 5 tokens in, 9 out",
    ]


@pytest.mark.parametrize(
    ("passed", "shown"),
    [(-5, "0 s"), (59.9, "59 s"), (3600, "1 h"), (90_061, "1 d 1 h"), (86_400 + 60, "1 d 1 min")],
)
def test_time_is_shown_in_its_two_largest_units(passed: float, shown: str) -> None:
    assert format_seconds(passed) == shown


def block_of(**changes: Any) -> str:
    """What stands on a terminal that is watched."""
    console = Console(file=StringIO(), width=120)
    console.print(_block(status(**changes), "pay: $1.2500 today"))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_an_idle_node_on_a_terminal_shows_that_nothing_runs() -> None:
    shown = block_of()
    assert "agent does not run, node unknown, no beat yet" in shown
    assert "pay: $1.2500 today" in shown
    assert "nothing runs" in shown


def test_what_runs_stands_on_the_terminal_and_what_ended_does_not() -> None:
    lease = {"state": "running", "since": AT, "billable_ms": 61_000, "lease_id": "0193", "has_ended": False}
    leases = [lease | {"job_name": "[red]alice-job"}, lease | {"job_name": "bobs-old-job", "has_ended": True}]
    contact = {"contact_at": datetime.now(UTC).isoformat(), "last_error": "clock_skew"}
    shown = block_of(leases=leases, running=True, last_contact=contact, fixes=["set the clock"])
    assert "agent runs, node unknown, last beat" in shown
    assert "[red]alice-job" in shown, "a name is shown as it is, and colours nothing"
    assert "61 s" in shown
    assert "bobs-old-job" not in shown
    assert "fix: set the clock" in shown
    assert "last error: clock_skew" in shown
