"""A program that prepares for long under the real agent: it runs, and is billed, from its first event on."""

from __future__ import annotations

import json
import sys

from provider_agent.protocol import AttemptState, Program, Reason

from ..conftest import Bob, eventually
from ..fake_server import FakeServer

# The very agent, but that a minute lasts half a second, and that its training is the program below.
QUICK = """
import sys
from provider_agent import resident
from provider_agent.lease import endings
from provider_agent.lease.runtimes import train

endings.PREPARING_FIRST_SECONDS = train.PREPARING_FIRST_SECONDS = 0.5
train.TrainRuntime.launch_command = lambda self, assignment, *, python: [python, "-c", PROGRAM]
raise SystemExit(resident.main())
"""
# Prepares without an event, then with one, until it is let go; then its data turns out to be bad.
PROGRAM = """
import os, pathlib, sys, time
from runtimes.contract import EventWriter

def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.05)

events = EventWriter()
print("preparing", flush=True)
events.write("preparing", what="data", seconds=0.4)
wait_for("move")
events.write("preparing", what="data", seconds=61.0, done=1, total=3, unit="bytes")
wait_for("go")
events.write("failed", message="the data holds no text", exit_code=65)
sys.exit(65)
"""


def test_a_program_that_prepares_runs_and_is_billed(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    bob.start(program=[sys.executable, "-c", f"PROGRAM = {PROGRAM!r}\n{QUICK}"])
    lease = server.give(bob.assignment(program=Program(runtime="train")))
    eventually(lambda: b'"seconds":0.4' in lease.events, "its first sign, which is too early")
    eventually(lambda: lease.report and lease.report.state is AttemptState.PREPARING, "it prepares")
    assert not lease.receipts
    (bob.folder.lease(lease.assignment.lease_id) / "work" / "move").touch()
    eventually(lambda: lease.report and lease.report.state is AttemptState.RUNNING, "it runs")
    eventually(lambda: lease.receipts, "a receipt")
    bob.let_go(lease.assignment.lease_id)
    eventually(lambda: lease.report and lease.report.reason is Reason.BAD_INPUT, "its end")
    assert lease.report is not None
    assert (lease.report.message, lease.report.exit_code) == ("the data holds no text", 65)
    assert lease.report.billable_ms > 0
    assert lease.states.index(AttemptState.PREPARING) < lease.states.index(AttemptState.RUNNING)
    eventually(lambda: len(lease.events) == lease.report.event_bytes, "the last event")
    kinds = [json.loads(line)["event"] for line in lease.events.splitlines()]
    assert kinds == ["preparing", "preparing", "failed"]
