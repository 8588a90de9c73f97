"""Bob's agent as a process, one of its loops dying: nothing goes on silently."""

from __future__ import annotations

import json
import sys
import time

import pytest

from .conftest import Bob, eventually
from .fake_server import FakeServer

pytestmark = pytest.mark.slow

# The agent as it stays in memory, with one loop that raises at once; RAISES says how often.
BROKEN_SWEEP = """
from provider_agent import daemon, loop_supervisor, resident
loop_supervisor.RESTART_SECONDS_FIRST = loop_supervisor.RESTART_SECONDS_MAX = 0.05
sweep_orphans, left = daemon.sweep_orphans, [RAISES]
async def broken(context, attempts):
    if left[0]:
        left[0] -= 1
        raise ZeroDivisionError("a bug in the sweep")
    await sweep_orphans(context, attempts)
daemon.sweep_orphans = broken
raise SystemExit(resident.main())
"""


def test_agent_whose_loop_keeps_dying_leaves_and_its_beats_end(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    bob.start(program=[sys.executable, "-c", BROKEN_SWEEP.replace("RAISES", "1000")])
    assert bob.process is not None
    assert bob.process.wait(30) == 11
    assert "The loop orphan containers failed" in bob.log_text()
    assert "a bug in the sweep" in bob.log_text()
    eventually(lambda: _is_silent(server), "an agent that lost a loop does not go on silently")
    assert (bob.data / "agent.ended").read_text().strip() == "11", "whoever keeps the agent starts it again"
    bob.process = None


def test_status_shows_a_loop_that_was_restarted(bob: Bob) -> None:
    bob.enrol()
    bob.start(program=[sys.executable, "-c", BROKEN_SWEEP.replace("RAISES", "2")])
    status = eventually(lambda: _failed_twice(bob), "the restarts in the status")
    assert "a bug in the sweep" in status["last_error"]
    lines = bob.run("status").stdout
    assert "loop orphan containers: failed 2 times and was restarted; last error: ZeroDivisionError" in lines
    assert bob.stop() == 0


def _is_silent(server: FakeServer) -> bool:
    """Whether no beat comes for two of them; what was on its way when the agent ended may come before."""
    beats = len(server.syncs)
    time.sleep(2 * server.beat_seconds)
    return len(server.syncs) == beats


def _failed_twice(bob: Bob) -> dict[str, str] | None:
    loops = {loop["name"]: loop for loop in json.loads(bob.run("status", "--json").stdout)["loops"]}
    return loops["orphan containers"] if loops.get("orphan containers", {}).get("failures") == 2 else None
