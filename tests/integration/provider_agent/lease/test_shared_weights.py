"""A serving lease's agent, as a real process, brings the model once and shows it to the program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from provider_agent.protocol import Program, Reason
from tests.integration.provider_agent.conftest import Bob, python
from tests.integration.provider_agent.endings import until_ended
from tests.integration.provider_agent.fake_server import FakeServer

CODE = """
import os, pathlib
folder = pathlib.Path(os.environ["SOUK_INPUT_DIR"])
weights = folder / "model" / "model.safetensors"
print(len(weights.read_bytes()), (folder / "model" / "config.json").read_text(), weights.stat().st_mode & 0o222)
"""


@pytest.fixture
def running(bob: Bob, server: FakeServer) -> Iterator[Bob]:
    bob.enrol()
    bob.start()
    yield bob


def test_second_replica_reads_what_the_first_brought(running: Bob, server: FakeServer) -> None:
    model = uuid4()
    server.downloads[model] = {"model/model.safetensors": b"w" * 5000, "model/config.json": b"{}"}
    program = Program(runtime="serve", command=python(CODE))
    for _ in range(2):
        lease = server.give(running.assignment(program=program, input_artifact_id=model))
        assert until_ended(lease).reason is Reason.COMPLETED, lease.logs
        assert lease.logs == b"5000 {} 0\n"
        events = [json.loads(line) for line in lease.events.splitlines()]
        assert events[-1]["event"] == "loading"
        assert (events[-1]["stage"], events[-1]["bytes"], events[-1]["bytes_total"]) == ("fetch", 5002, 5002)
    assert len(list((running.data / "weights" / "files").iterdir())) == 2


def test_damaged_model_is_an_input_that_cannot_be_had(running: Bob, server: FakeServer) -> None:
    model = uuid4()
    server.downloads[model] = {"../outside": b"{}"}
    program = Program(runtime="serve", command=python(CODE))
    report = until_ended(server.give(running.assignment(program=program, input_artifact_id=model)))
    assert report.reason is Reason.INPUT_UNAVAILABLE
    assert not Path(running.data / "outside").exists()
