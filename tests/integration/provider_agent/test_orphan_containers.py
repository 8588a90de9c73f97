"""Programs without a lease, and leases without a program: neither stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from provider_agent.journal import Journal
from provider_agent.lease.orphan_containers import FACT_KILLED
from provider_agent.protocol import AttemptState, Reason
from tests.integration.provider_agent.conftest import LOOKS_OFTEN, Bob, eventually, processes_of, python
from tests.integration.provider_agent.fake_server import FakeServer

SLEEP = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
def orphans() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def killed_so_far(bob: Bob) -> str | None:
    journal = Journal(bob.folder.journal)
    try:
        return journal.load_fact(FACT_KILLED)
    finally:
        journal.close()


def start_orphan(started: list[subprocess.Popen[bytes]], leases: Path, lease_id: UUID) -> subprocess.Popen[bytes]:
    """What an agent would have left behind: a process with its markers."""
    markers = {"SOUK_LEASE_ID": str(lease_id), "SOUK_AGENT_LEASES": str(leases), "PATH": os.defpath}
    started.append(subprocess.Popen([sys.executable, "-c", SLEEP], env=markers, stdout=subprocess.DEVNULL))
    return started[-1]


def test_program_without_a_lease_is_killed_and_counted_and_other_agents_are_not(
    bob: Bob, server: FakeServer, orphans: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    bob.enrol()
    orphan = start_orphan(orphans, bob.folder.leases, uuid4())
    others = start_orphan(orphans, tmp_path / "charlie" / "leases", uuid4())
    bob.start()
    lease = server.give(bob.assignment(*python(SLEEP)))
    eventually(lambda: orphan.poll() is not None, "the sweep")
    assert "A program without a lease was found" in bob.log_text()
    eventually(lambda: lease.report and lease.report.state is AttemptState.RUNNING, "running")
    second = start_orphan(orphans, bob.folder.leases, uuid4())
    eventually(lambda: second.poll() is not None, "the next sweep")
    assert others.poll() is None
    assert lease.report is not None
    assert lease.report.state is AttemptState.RUNNING
    eventually(lambda: killed_so_far(bob) == "2", "the count in the journal")
    bob.stop()
    bob.start(program=[sys.executable, "-c", LOOKS_OFTEN])  # a new agent goes on counting
    eventually(lambda: any(s.load and s.load.node["ghosts_killed"] == 2 for s in server.syncs), "the count")
    assert processes_of(lease.assignment.lease_id)


def test_program_whose_lease_was_forgotten_while_no_agent_was_there_is_killed(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    bob.start()
    lease = server.give(bob.assignment(*python(SLEEP)))
    eventually(lambda: lease.report and lease.report.state is AttemptState.RUNNING, "running")
    bob.stop(signal.SIGKILL)
    for path in bob.data.glob("journal.sqlite3*"):  # a disk that was restored from a day before
        path.unlink()
    bob.mark_measured()
    bob.start()
    eventually(lambda: not processes_of(lease.assignment.lease_id), "the sweep")


def test_lease_without_a_program_ends_and_its_seconds_stop(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    bob.start()
    lease = server.give(bob.assignment(*python(SLEEP)))
    eventually(lambda: lease.report and lease.report.state is AttemptState.RUNNING, "running")
    for process in processes_of(lease.assignment.lease_id):
        process.kill()
    eventually(lambda: lease.report and lease.report.reason is Reason.PROCESS_VANISHED, "the end")
    assert lease.report is not None
    assert lease.report.state is AttemptState.LOST
