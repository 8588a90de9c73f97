"""The built-in training under the agent: two ranks, stopped after a checkpoint, gone on with on one."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from provider_agent.protocol import ATTEMPT_ENDS, AttemptState, CheckpointPolicy, GangPlace, Program, Reason
from tests.integration.provider_agent.conftest import Bob, eventually
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
