"""drain, resume, price, earnings, logs and status: what Bob is shown, and what his node reports to the marketplace."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time

import pytest

from provider_agent.protocol import Reason
from tests.integration.provider_agent.conftest import REPOSITORY, Bob, eventually, python
from tests.integration.provider_agent.fake_server import FakeServer

UP = "import time; print('\\x1b[31mup', flush=True); time.sleep(600)"


def test_bob_drains_and_resumes_beside_a_running_agent_as_often_as_he_likes(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    for _ in range(2):
        done = bob.run("drain", "--reason", "new fans", "--json")
        assert json.loads(done.stdout)["node_state"] == "draining", done.stderr
    assert server.drained == ["new fans", "new fans"]
    assert bob.run("drain").stdout.startswith("draining")
    assert json.loads(bob.run("resume", "--json").stdout)["node_state"] == "online"


def test_bob_sees_and_changes_his_price(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    assert "$1.0000 per device and hour" in bob.run("price").stdout
    found = json.loads(bob.run("price", "1.35", "--json").stdout)
    assert found["price_usd_micros_per_device_hour"] == server.price == 1_350_000


@pytest.mark.parametrize("price", ["0", "1000.01", "nan"])
def test_a_price_out_of_bounds_changes_nothing(bob: Bob, server: FakeServer, price: str) -> None:
    bob.enrol()
    done = bob.run("price", price)
    assert done.returncode == 2
    assert "between" in done.stderr
    assert server.price == 1_000_000


def test_earnings_are_asked_of_the_server(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    assert json.loads(bob.run("earnings", "--json").stdout)["week_usd_micros"] == 9_000_000
    assert "$1.2500  from 2 lease(s)" in bob.run("earnings").stdout
    server.stop()
    done = bob.run("earnings")
    assert (done.returncode, done.stderr.count("\n")) == (5, 1)


def test_logs_show_the_agents_own_and_a_programs_without_what_steers_a_terminal(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    bob.start()
    lease = server.give(bob.assignment(*python(UP)))
    eventually(lambda: lease.logs, "the first output")
    assert "Agent started" in bob.run("logs").stdout
    shown = bob.run("logs", "--lease", str(lease.assignment.lease_id)).stdout
    assert shown == "\ufffd[31mup\n"
    assert (
        json.loads(bob.run("logs", "--lease", str(lease.assignment.lease_id), "--json").stdout)["line"][1:] == "[31mup"
    )
    assert bob.run("logs", "--lease", "../../etc").returncode == 2
    status = json.loads(bob.run("status", "--json").stdout)
    assert (status["health"], status["leases"][0]["has_ended"]) == ("good", False)
    assert status["leases"][0]["since"]
    server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)
    eventually(lambda: lease.report and lease.report.reason, "the end")


def test_logs_follow_what_comes(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    bob.folder.log.write_text("one\ntwo\n")
    command = [sys.executable, "-m", "provider_agent", "logs", "-f", "--lines", "1", "--data", str(bob.data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "two\n"
        with bob.folder.log.open("a") as log:
            log.write("three\n")
        assert following.stdout.readline() == "three\n"
        following.terminate()


def test_watching_is_a_live_block_on_a_terminal_and_plain_lines_elsewhere(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    bob.start()
    command = [sys.executable, "-m", "provider_agent", "status", "--watch", "--data", str(bob.data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as plain:
        assert plain.stdout is not None
        lines = [plain.stdout.readline() for _ in range(5)]
        plain.terminate()
    assert lines[2] == "health: good\n"
    assert lines[3].startswith("version: ")
    assert lines[4] == "pay: $1.2500 today, $0.0003 open\n"
    lease = server.give(bob.assignment(*python(UP)))
    eventually(lambda: lease.logs, "the first output")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "140", "LINES": "40", "TERM": "xterm"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=REPOSITORY, env=environment) as live:
        os.close(theirs)
        seen, until = b"", time.monotonic() + 20
        while b"alice-job" not in seen and time.monotonic() < until:
            seen += os.read(ours, 65536)
        live.terminate()
    os.close(ours)
    text = seen.decode(errors="replace")
    assert "alice-job" in text
    assert "$1.2500 today" in text
    assert "last beat" in text
    server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)


def test_bob_declares_his_hours_and_windows_and_repeating_says_nothing_new(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    assert bob.run("schedule").stdout == "there: always\n"
    hours = ["schedule", "--hours", "fri 18:00-08:00", "--timezone", "Europe/Berlin"]
    assert bob.run(*hours).stdout == "there: fri 18:00-24:00, sat 00:00-08:00 (Europe/Berlin)\n"
    window = ["schedule", "--away", "2031-12-01T08:00+01:00/2031-12-01T12:00+01:00", "--json"]
    for _ in range(2):
        assert len(json.loads(bob.run(*window).stdout)["away"]) == 1
    assert server.schedules_received == 2
    assert "away: 2031-12-01 07:00 to 2031-12-01 11:00 UTC" in bob.run("schedule").stdout
    assert bob.run("schedule", "--hours", "always", "--no-away").stdout == "there: always\n"


@pytest.mark.parametrize(
    "wrong",
    [["--hours", "someday 1-2"], ["--hours", "mon 9:00-25:00"], ["--away", "soon"]],
)
def test_hours_that_cannot_be_understood_change_nothing(bob: Bob, server: FakeServer, wrong: list[str]) -> None:
    bob.enrol()
    done = bob.run("schedule", *wrong)
    assert (done.returncode, done.stderr.count("\n"), server.schedules_received) == (2, 1, 0)
