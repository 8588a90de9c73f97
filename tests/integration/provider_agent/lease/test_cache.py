"""What a program leaves for later ones is there for the next lease of its customer, and for nobody else's."""

from __future__ import annotations

import hashlib
import shlex
import sqlite3
import sys
from pathlib import Path

import pytest

from provider_agent.executors import landlock
from provider_agent.protocol import Program, Reason
from tests.integration.provider_agent.conftest import Bob, eventually
from tests.integration.provider_agent.endings import until_ended
from tests.integration.provider_agent.fake_leases import Lease
from tests.integration.provider_agent.fake_server import FakeServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ALICE, CAROL = "a" * 32, "c" * 32
KEY = hashlib.sha256(b"what it was made of").hexdigest()
MAKES = (
    f"test -d $SOUK_CACHE_DIR && mkdir -p .souk-cache/own/{KEY} && echo made > .souk-cache/own/{KEY}/text"
    f" && echo {{}} > .souk-cache/own/{KEY}/MANIFEST.json"
)
READS = f'cat "$SOUK_CACHE_DIR/own/{KEY}/text" || echo nothing'
WRITES = f'echo mine > "$SOUK_CACHE_DIR/own/{KEY}/more" || echo refused'

SHELL = """
from provider_agent import resident
from provider_agent.lease.runtimes import base, registry

class Shell(base.Runtime):
    name = "shell"
    def launch_command(self, assignment, *, python):
        return ["bash", "-c", assignment.program.config["line"]]
    def is_healthy(self, assignment, *, events, has_output, alive_seconds):
        return has_output or alive_seconds >= 1.0
    def has_cache(self, assignment):
        return True

registry.RUNTIMES["shell"] = Shell()
raise SystemExit(resident.main())
"""
PROGRAM = [sys.executable, "-c", SHELL]  # the agent, with one more runtime that is its own and has a cache


@pytest.fixture
def running(bob: Bob) -> Bob:
    """Bob's node, enrolled and started."""
    bob.enrol()
    bob.start(program=PROGRAM)
    return bob


def give(bob: Bob, server: FakeServer, line: str, owner: str, *, is_own: bool = False) -> Lease:
    ours = Program(runtime="shell", config={"line": line})
    program = Program(command=["bash", "-c", line]) if is_own else ours
    return server.give(bob.assignment(program=program, cache_owner=owner))


def said(bob: Bob, server: FakeServer, line: str, owner: str, *, is_own: bool = False) -> str:
    """What a program printed that ended well."""
    lease = give(bob, server, line, owner, is_own=is_own)
    report = until_ended(lease)
    assert report.reason is Reason.COMPLETED, lease.logs
    eventually(lambda: len(lease.logs) == report.log_bytes, "the last of the log")
    return lease.logs.decode()


def test_the_next_lease_of_a_customer_finds_it_and_no_other(running: Bob, server: FakeServer) -> None:
    assert "kept in this node's cache for later jobs of yours: own" in said(running, server, MAKES, ALICE)
    assert "made" in said(running, server, READS, ALICE)
    assert "made" not in said(running, server, READS, CAROL)
    assert "nothing" in said(running, server, f'test -z "$SOUK_CACHE_DIR" && {READS}', ""), "no owner, no cache"
    names = {file.path for artifact in server.artifacts.values() for file in artifact.begin.files}
    assert not any("souk-cache" in name for name in names), "it is no output"


def test_an_own_command_reads_nothing_and_leaves_nothing(running: Bob, server: FakeServer) -> None:
    makes = MAKES.replace("test -d", "test -z")
    assert "kept" not in said(running, server, makes, ALICE, is_own=True)
    assert not list(running.folder.cache.glob(f"{ALICE}/*"))
    said(running, server, MAKES, ALICE)
    assert "made" not in said(running, server, READS, ALICE, is_own=True)


def test_a_program_reaches_no_entry_of_another_and_changes_none_of_its_own(running: Bob, server: FakeServer) -> None:
    if not landlock.is_available():
        pytest.skip("this kernel has no Landlock")
    said(running, server, MAKES, ALICE)
    assert "refused" in said(running, server, WRITES, ALICE)
    path = running.folder.cache / ALICE / "own" / KEY
    assert sorted(each.name for each in path.iterdir()) == ["MANIFEST.json", "text"]
    assert "made" not in said(running, server, f"cat {shlex.quote(str(path / 'text'))} || echo closed", CAROL)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_a_program_left_is_kept_unless_it_was_stopped(running: Bob, server: FakeServer, is_stopped: bool) -> None:
    lease = give(running, server, f"{MAKES}; touch waits; while [ ! -e go ]; do sleep 0.1; done; exit 7", ALICE)
    work = running.folder.lease(lease.assignment.lease_id) / "work"
    eventually((work / "waits").exists, "the entry")
    running.stop()
    running.start(program=PROGRAM)  # the next agent adopts the program
    if is_stopped:
        server.stop_lease(lease, Reason.NODE_DRAINED)
    else:
        running.let_go(lease.assignment.lease_id)
    assert until_ended(lease).reason is (Reason.NODE_DRAINED if is_stopped else Reason.INTERNAL)
    assert ("made" in said(running, server, READS, ALICE)) is not is_stopped


def test_a_cache_that_cannot_be_opened_fails_no_lease(running: Bob, server: FakeServer) -> None:
    running.folder.cache.write_text("no folder")
    assert "nothing" in said(running, server, f'test -z "$SOUK_CACHE_DIR" && {READS}', ALICE)
    eventually(lambda: "The cache could not be opened" in running.log_text(), "the warning")


def test_the_journal_can_be_read_by_the_release_before(running: Bob, server: FakeServer) -> None:
    lease = give(running, server, "sleep 600", ALICE)
    eventually(lambda: lease.report, "the lease")
    journal = sqlite3.connect(f"file:{running.folder.journal}?mode=ro", uri=True)
    [(kept,)] = journal.execute("SELECT assignment FROM lease").fetchall()
    journal.close()
    assert "cache_owner" not in kept
    server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)
    until_ended(lease)


def test_a_provider_who_keeps_none_offers_none(bob: Bob, server: FakeServer) -> None:
    bob.enrol(cache_gib=0)
    bob.start(program=PROGRAM)
    assert not {"cache", "prepared"} & set(server.nodes[bob.node_id()].facts.runtime_features)
    left = bob.folder.cache / ALICE / "own" / KEY
    left.mkdir(parents=True)
    Path(left / "text").write_text("of before")
    assert "nothing" in said(bob, server, READS, ALICE)
    assert not bob.folder.cache.exists(), "what was kept before is gone"
