"""The built-in training under the agent: two ranks, stopped after a checkpoint, gone on with on one."""

from __future__ import annotations

import json
import signal
import time
from uuid import uuid4

import psutil
import pytest

from provider_agent.protocol import ATTEMPT_ENDS, AttemptState, CheckpointPolicy, GangPlace, Program, Reason
from runtimes.contract import GANG_FILE, Env
from tests.integration.provider_agent.conftest import Bob, eventually, processes_of
from tests.integration.provider_agent.fake_leases import Artifact, Lease
from tests.integration.provider_agent.fake_server import FakeServer

STEPS = 150
CONFIG = {"sequence_length": 32, "global_batch_size": 4, "warmup_steps": 2, "evaluate_every": 0, "steps": STEPS}
SECONDS_MAX = 150.0


def events(lease: Lease) -> list[dict[str, object]]:
    return [json.loads(line) for line in lease.events.splitlines()]


def complete(server: FakeServer, kind: str) -> list[Artifact]:
    return [artifact for artifact in server.artifacts.values() if artifact.is_complete and artifact.begin.kind == kind]


@pytest.mark.timeout(900)
def test_training_stops_with_a_checkpoint_and_resumes_from_it_elsewhere(bob: Bob, server: FakeServer) -> None:
    bob.enrol(devices=2)
    bob.start()
    program = Program(runtime="train", config=CONFIG)
    policy = CheckpointPolicy(every_steps=5)
    gang = GangPlace(devices_per_node=2)
    first = server.give(bob.assignment(program=program, checkpoint=policy, gang=gang, stop_grace_seconds=60))
    eventually(lambda: complete(server, "checkpoint"), "a checkpoint", seconds=SECONDS_MAX)
    assert AttemptState.RUNNING in first.states
    server.stop_lease(first, Reason.NODE_DRAINED)
    eventually(lambda: first.report and first.report.state in ATTEMPT_ENDS, "the stop", seconds=SECONDS_MAX)
    assert first.report is not None
    assert (first.report.reason, first.report.exit_code) == (Reason.NODE_DRAINED, 75), first.logs[-2000:]

    newest = max(complete(server, "checkpoint"), key=lambda artifact: artifact.begin.step or 0)
    artifact_id = uuid4()
    server.downloads[artifact_id] = {file.path: newest.files[file.path] for file in newest.begin.files}
    second = server.give(
        bob.assignment(
            program=program, checkpoint=policy, resume_artifact_id=artifact_id, device_uuids=bob.devices()[:1]
        )
    )
    eventually(lambda: second.report and second.report.state in ATTEMPT_ENDS, "the end", seconds=SECONDS_MAX)
    assert second.report is not None
    assert second.report.reason is Reason.COMPLETED, second.logs[-2000:]
    eventually(lambda: len(second.events) == second.report.event_bytes, "the last event")
    resumed = next(event for event in events(second) if event["event"] == "resumed")
    assert resumed["step"] == newest.begin.step
    assert events(second)[-1]["event"] == "finished"
    assert any(file.path.endswith(".safetensors") for file in complete(server, "output")[0].begin.files)


@pytest.mark.timeout(300)
def test_a_lost_peer_is_reported_before_the_next_beat(bob: Bob, server: FakeServer) -> None:
    """Its ranks abort, as NCCL lets them; the launcher waits for another generation."""
    server.beat_seconds = 60.0  # so held syncs last 15 s, the most that agents ask for
    bob.enrol()
    bob.start()
    place = GangPlace(nodes=2, node_rank=0, master_address="127.0.0.1", master_port=29761)
    lease = server.give(bob.assignment(program=Program(runtime="train", config=CONFIG), gang=place))
    eventually(lambda: lease.report and lease.report.follows_generations, "the launcher", seconds=SECONDS_MAX)
    assert lease.report is not None
    assert not lease.report.lost_peer
    (launcher,) = [each for each in processes_of(lease.assignment.lease_id) if is_launcher(each)]
    (child,) = eventually(launcher.children, "its child")
    count = len(server.syncs)
    eventually(lambda: len(server.syncs) > count, "a beat", seconds=30)
    began = time.monotonic()
    child.send_signal(signal.SIGABRT)
    eventually(lambda: lease.report is not None and lease.report.lost_peer, "its report")
    assert time.monotonic() - began < 13, "the beat after that one"
    assert lease.report.state not in ATTEMPT_ENDS


@pytest.mark.timeout(600)
def test_who_waits_to_join_a_gang_does_after_its_agent_was_restarted(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    bob.start()
    place = GangPlace(nodes=3, node_rank=2, master_address="127.0.0.1", master_port=29765)
    program = Program(runtime="train", config=CONFIG)
    lease = server.give(bob.assignment(program=program, gang=place, joins_next=True, cap_usd_micros=0, seconds_max=1))
    eventually(lambda: lease.report and lease.report.follows_sizes, "the launcher", seconds=SECONDS_MAX)
    (before,) = [each for each in processes_of(lease.assignment.lease_id) if is_launcher(each)]
    eventually(lambda: b"Waiting to join" in lease.logs, "its word")
    bob.stop(signal.SIGKILL)
    journal = b"".join(path.read_bytes() for path in bob.folder.root.glob("journal.sqlite3*"))
    assert str(lease.assignment.lease_id).encode() in journal
    assert b"joins_next" not in journal, "the agent of the release before could not read it"
    bob.start()
    changes = {
        "joins_next": False,
        "generation": 1,
        "gang": place.model_copy(update={"nodes": 2, "node_rank": 1, "master_port": 29767}),
        "cap_usd_micros": 10**12,
        "seconds_max": 600,
    }
    server.regroup(lease, lease.assignment.model_copy(update=changes))
    eventually(lambda: b"Generation 1 of the gang begins at step 0" in lease.logs, "its generation", SECONDS_MAX)
    (after,) = [each for each in processes_of(lease.assignment.lease_id) if is_launcher(each)]
    assert after.pid == before.pid
    told = json.loads((bob.folder.lease(lease.assignment.lease_id) / "work" / GANG_FILE).read_text())["environment"]
    assert (told[Env.NODES], told[Env.NODE_RANK], told[Env.MASTER_PORT]) == ("2", "1", "29767")
    assert lease.report is not None
    assert (lease.report.state, lease.report.billable_ms) == (AttemptState.PREPARING, 0)
    eventually(lambda: lease.report is not None and lease.report.generation == 1, "its report")
    server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)
    eventually(lambda: lease.report is not None and lease.report.state in ATTEMPT_ENDS, "its end", seconds=60)
    assert lease.receipts == []


def is_launcher(process: psutil.Process) -> bool:
    """Whether it is the one that outlives the ranks: its parent runs no launcher."""
    parent = process.parent()
    return "runtimes.launch" in process.cmdline() and (parent is None or "runtimes.launch" not in parent.cmdline())
