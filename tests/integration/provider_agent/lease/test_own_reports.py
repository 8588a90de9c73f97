"""What an own command reports through its node is what its job's curve shows; its money is counted without it."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from jobs.running.curve_points import read_readings
from provider_agent.protocol import Reason
from tests.integration.provider_agent.conftest import REPOSITORY, Bob, eventually, python
from tests.integration.provider_agent.endings import until_ended
from tests.integration.provider_agent.fake_server import FakeServer

pytestmark = pytest.mark.timeout(300)

REPORTS = """
import os, time
from runtimes import reporting as souk
souk.started(steps_total=3)
for step in (1, 2, 3):
    souk.report(step, loss=3 / step, accuracy=step / 9)
with souk.checkpoint(3) as folder:
    (folder / "state").write_text("three")
while not os.path.exists("go"):  # what is saved at the very end may come too late to be sent
    time.sleep(0.1)
"""


@pytest.fixture
def running(bob: Bob) -> Bob:
    """Bob's node, enrolled and started."""
    bob.enrol()
    bob.start()
    return bob


def test_an_own_command_reports_steps_and_saves_a_checkpoint(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(*python(REPORTS)))
    eventually(lambda: any(each.is_complete for each in server.artifacts.values()), "the checkpoint")
    running.let_go(lease.assignment.lease_id)
    assert until_ended(lease).reason == Reason.COMPLETED
    events = [json.loads(line) for line in lease.events.splitlines()]
    assert [event["event"] for event in events] == ["started", "step", "step", "step", "checkpointed"]
    assert read_readings(events[3]) == {"loss": 1.0, "accuracy": 3 / 9}
    (checkpoint,) = [each for each in server.artifacts.values() if each.begin.kind == "checkpoint"]
    assert checkpoint.is_complete
    assert checkpoint.begin.step == 3
    assert {Path(file.path).name for file in checkpoint.begin.files} == {"state", "MANIFEST.json"}


@pytest.mark.slow
def test_the_example_of_a_hugging_face_trainer_reports_its_curve(running: Bob, server: FakeServer) -> None:
    input_id = uuid4()
    script = REPOSITORY / "examples" / "hf_reporting.py"
    server.downloads[input_id] = {script.name: script.read_bytes()}
    command = ["python", "input/hf_reporting.py", "--steps", "20"]
    lease = server.give(running.assignment(*command, input_artifact_id=input_id))
    assert until_ended(lease).reason == Reason.COMPLETED, lease.logs.decode()
    events = [json.loads(line) for line in lease.events.splitlines()]
    assert [event["step"] for event in events if event["event"] == "step"] == [5, 10, 15, 20]
    assert "evaluation_loss" in read_readings(events[-1])
