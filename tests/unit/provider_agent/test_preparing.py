"""When a training that prepares counts as running, and is billed from there."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from provider_agent.lease.runtimes.registry import RUNTIMES
from provider_agent.protocol import Assignment, Program


def assignment(**program: object) -> Assignment:
    return Assignment(
        node_id=uuid4(),
        lease_id=uuid4(),
        fence=1,
        attempt_id=uuid4(),
        attempt_number=1,
        job_id=uuid4(),
        job_name="alice-job",
        device_uuids=["cpu-0"],
        rate_usd_micros_per_hour=1,
        cap_usd_micros=1,
        program=Program(**program),
        seconds_max=600,
    )


def line(**changes: object) -> bytes:
    return json.dumps({"event": "preparing", "at": 1.0, "what": "data", "seconds": 61.0} | changes).encode() + b"\n"


def is_healthy(events: bytes, *, alive_seconds: float = 61.0, runtime: str = "train", **program: object) -> bool:
    given = assignment(runtime=runtime, **program)
    return RUNTIMES[runtime].is_healthy(given, events=events, has_output=False, alive_seconds=alive_seconds)


def test_a_training_that_prepares_for_a_minute_runs() -> None:
    assert not is_healthy(b"")
    assert is_healthy(line())
    assert is_healthy(b'no json "preparing"\n' + line() + b'{"event": "prep')


def test_no_program_is_billed_for_its_first_minute() -> None:
    assert not is_healthy(line(), alive_seconds=59.0), "it says so, and the agent's clock does not"
    assert not is_healthy(line(seconds=59.0)), "three short works are no long one"
    assert is_healthy(b'{"event": "started"}\n', alive_seconds=1.0), "but one that trains is"


@pytest.mark.parametrize(
    "events",
    [
        line()[:-2],
        line(event="Preparing"),
        line(what="nothing"),
        line(seconds="61"),
        line(seconds=10**12),
        b'["preparing"]\n',
        b'{"event":"step","text":""preparing""}\n',
        b"[" * 100_000 + b'"preparing"\n',
    ],
)
def test_what_is_no_preparing_event_starts_no_meter(events: bytes) -> None:
    assert not is_healthy(events)


def test_only_our_own_training_prepares() -> None:
    assert not is_healthy(line(), alive_seconds=0.5, command=["true"])
    assert not is_healthy(line(), runtime="serve")
