"""runtimes/images/Dockerfile.train, really built on the test image, and a training in it under every protection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from provider_agent.protocol import ATTEMPT_ENDS, CheckpointPolicy, Program, Reason
from tests.contracts.executors.providers import bob_over
from tests.contracts.executors.train_image import engine_with_train_image
from tests.contracts.executors.world import World
from tests.integration.provider_agent.conftest import Bob, eventually

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1500)]

TRAIN_SECONDS_MAX = 240.0
CONFIG = {"sequence_length": 32, "global_batch_size": 4, "warmup_steps": 2, "evaluate_every": 0, "steps": 8}


@pytest.fixture(scope="module")
def train_engine(world: World) -> Iterator[tuple[str, str]]:
    """An engine of its own that keeps its images, and the name of the image of this source."""
    with engine_with_train_image(world) as made:
        yield made


@pytest.fixture
def bob(train_engine: tuple[str, str], tmp_path: Path) -> Iterator[Bob]:
    """Bob's node, with that image for the built-in runtime."""
    address, image = train_engine
    with bob_over(address, tmp_path / "bob", train_image=image) as made:
        yield made


def test_train_image_trains_under_every_protection(bob: Bob) -> None:
    program = Program(runtime="train", config=CONFIG)
    policy = CheckpointPolicy(every_steps=4)
    lease = bob.server.give(bob.assignment(program=program, checkpoint=policy, stop_grace_seconds=60))
    eventually(lambda: lease.report and lease.report.state in ATTEMPT_ENDS, "the end", seconds=TRAIN_SECONDS_MAX)
    assert lease.report.reason is Reason.COMPLETED, lease.logs[-3000:]
    eventually(lambda: len(lease.events) == lease.report.event_bytes, "the last event")
    happened = [json.loads(line)["event"] for line in lease.events.splitlines()]
    assert happened[0] == "image"
    assert happened[-1] == "finished"
    assert "checkpointed" in happened
    made = [artifact for artifact in bob.server.artifacts.values() if artifact.is_complete]
    assert {artifact.begin.kind for artifact in made} == {"checkpoint", "output"}
    assert b"no capabilities" in lease.logs
    assert b"no limit" not in lease.logs
