"""What a training prepared for long is sent while it runs, and lies in the next attempt's folder before it starts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shlex
import shutil
import sys
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from provider_agent.context import AgentContext
from provider_agent.lease.assignments import accept_assignment
from provider_agent.lease.preparation import prepare
from provider_agent.protocol import Assignment, AttemptState, Program, Reason
from tests.integration.provider_agent.conftest import Bob, eventually
from tests.integration.provider_agent.endings import until_ended
from tests.integration.provider_agent.fake_leases import Artifact, Lease
from tests.integration.provider_agent.fake_server import FakeServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ALICE, KEY = "a" * 32, "1" * 64
STARTED = """echo '{"event":"started","at":1}' >> "$SOUK_EVENTS" """
WAITS = "while [ ! -e go ]; do sleep 0.1; done"
FOLDER = f".souk-cache/tokens/{KEY}"
READS = f"cat {FOLDER}/tokens.int32 || echo nothing"

SHELL = """
from provider_agent import resident
from provider_agent.lease.cache import prepared
from provider_agent.lease.runtimes import base, registry

prepared.LOOK_SECONDS = prepared.YIELD_SECONDS = 0.1

class Shell(base.Runtime):
    name = "shell"
    def launch_command(self, assignment, *, python):
        return ["bash", "-c", assignment.program.config["line"]]
    def has_cache(self, assignment):
        return True

registry.RUNTIMES["shell"] = Shell()
raise SystemExit(resident.main())
"""
PROGRAM = [sys.executable, "-c", SHELL]  # the agent, with one more runtime that is its own and has a cache


def makes(seconds: float) -> str:
    """A line that leaves tokens which took so long."""
    listed = {"path": "tokens.int32", "size": 5, "sha256": hashlib.sha256(b"made\n").hexdigest()}
    manifest = json.dumps({"files": [listed], "made_seconds": seconds})
    write = f"echo made > {FOLDER}/tokens.int32 && echo {shlex.quote(manifest)} > {FOLDER}/MANIFEST.json"
    return f"mkdir -p {FOLDER} && {write}"


@pytest.fixture
def running(bob: Bob) -> Bob:
    """Bob's node, enrolled and started."""
    bob.enrol()
    bob.start(program=PROGRAM)
    return bob


def give(bob: Bob, server: FakeServer, line: str, **more: Any) -> Lease:
    program = Program(runtime="shell", config={"line": line})
    return server.give(bob.assignment(program=program, cache_owner=ALICE, **more))


def brought(server: FakeServer) -> list[Artifact]:
    return [each for each in server.artifacts.values() if each.begin.kind == "prepared" and each.is_complete]


def test_it_is_sent_while_the_training_runs(running: Bob, server: FakeServer) -> None:
    lease = give(running, server, f"{makes(90)}; {STARTED}; {WAITS}")
    [artifact] = eventually(lambda: brought(server), "the prepared data")
    eventually(lambda: lease.report and lease.report.state is AttemptState.RUNNING, "the running program")
    assert artifact.files[f"tokens/{KEY}/tokens.int32"] == b"made\n"
    assert (artifact.begin.step, artifact.begin.node_rank) == (None, 0)
    running.stop()
    running.start(program=PROGRAM)  # the next agent does not send it again
    running.let_go(lease.assignment.lease_id)
    assert until_ended(lease).reason is Reason.COMPLETED
    assert len(brought(server)) == 1


def test_what_was_made_soon_is_not_sent(running: Bob, server: FakeServer) -> None:
    lease = give(running, server, f"{makes(59.9)}; {STARTED}; sleep 2")
    assert until_ended(lease).reason is Reason.COMPLETED
    assert not [each for each in server.artifacts.values() if each.begin.kind == "prepared"]


def test_the_next_attempt_finds_it_before_it_starts_and_sends_it_no_more(running: Bob, server: FakeServer) -> None:
    artifact_id = uuid4()
    manifest = json.dumps({"files": [], "made_seconds": 90}).encode()
    server.downloads[artifact_id] = {f"tokens/{KEY}/tokens.int32": b"fetched", f"tokens/{KEY}/MANIFEST.json": manifest}
    lease = give(running, server, f"{READS}; {STARTED}; sleep 2", prepared_artifact_id=artifact_id)
    assert until_ended(lease).reason is Reason.COMPLETED
    assert b"fetched" in lease.logs
    assert not brought(server)
    again = give(running, server, READS, prepared_artifact_id=artifact_id)
    until_ended(again)
    assert b"fetched" in again.logs
    assert not list(running.folder.cache.glob("*/tokens/*")), "the node's cache has what was made on it alone"


def test_what_the_program_makes_anew_is_sent_and_kept_on_the_node(running: Bob, server: FakeServer) -> None:
    """What came was a bad one: else it would stay for as long as the job lives."""
    artifact_id = uuid4()
    server.downloads[artifact_id] = {f"tokens/{KEY}/tokens.int32": b"bad", f"tokens/{KEY}/MANIFEST.json": b"{}"}
    lease = give(running, server, f"{makes(90)}; {STARTED}; {WAITS}", prepared_artifact_id=artifact_id)
    [artifact] = eventually(lambda: brought(server), "the prepared data")
    assert artifact.files[f"tokens/{KEY}/tokens.int32"] == b"made\n"
    running.let_go(lease.assignment.lease_id)
    assert until_ended(lease).reason is Reason.COMPLETED
    [kept] = running.folder.cache.glob("*/tokens/*/tokens.int32")
    assert kept.read_bytes() == b"made\n"


def test_a_lease_of_one_of_two_devices_has_half_of_a_shared_disk(
    context: AgentContext, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    [device] = context.devices.values()
    context.devices["other"] = device
    file = {f"tokens/{KEY}/MANIFEST.json": json.dumps({"files": []}).encode()}
    size = sum(map(len, file.values()))

    async def fetched(free: int, fence: int) -> bool:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=free, free=free))
        artifact_id = uuid4()
        server.downloads[artifact_id] = file
        assignment = Assignment(
            node_id=context.config.node_id,
            lease_id=uuid4(),
            fence=fence,
            attempt_id=uuid4(),
            attempt_number=1,
            job_id=uuid4(),
            job_name="alice-job",
            device_uuids=[device.uuid],
            rate_usd_micros_per_hour=1,
            cap_usd_micros=1,
            program=Program(runtime="train"),
            seconds_max=600,
            cache_owner=ALICE,
            prepared_artifact_id=artifact_id,
        )
        accept_assignment(context, server.give(assignment).desired)
        await prepare(context, assignment)
        return (context.folder.lease(assignment.lease_id) / "work" / FOLDER).exists()

    async def fetch_both() -> list[bool]:
        try:
            return [await fetched(4 * size - 1, 1), await fetched(4 * size, 2)]
        finally:
            await context.client.close()  # in the loop that it connected in

    assert asyncio.run(fetch_both()) == [False, True]


@pytest.mark.parametrize("fault", ["damaged", "another name", "gone"])
def test_what_is_wrong_with_it_fails_no_attempt(running: Bob, server: FakeServer, fault: str) -> None:
    artifact_id = uuid4()
    files = {f"tokens/{KEY}/tokens.int32": b"fetched", f"tokens/{KEY}/MANIFEST.json": b"{}"}
    if fault == "damaged":
        server.damaged.add(artifact_id)
    if fault == "another name":
        files["../secret"] = b"more"
    if fault == "gone":
        server.fail_with[f"artifacts/{artifact_id}"] = 404
    server.downloads[artifact_id] = files
    lease = give(running, server, f"{READS}; {STARTED}", prepared_artifact_id=artifact_id)
    assert until_ended(lease).reason is Reason.COMPLETED
    assert b"nothing" in lease.logs
    eventually(lambda: "Prepared data was not fetched" in running.log_text(), "the warning")
