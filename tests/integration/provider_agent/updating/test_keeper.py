"""Without systemd the keeper brings back an agent that crashed, ever more slowly, and none that was stopped."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from provider_agent.config import DataFolder
from provider_agent.packaging import updater_service
from provider_agent.packaging.service import choose_way, is_running
from provider_agent.updating.reviving import STEADY_SECONDS, TRIES_MAX, WAIT_SECONDS_MAX, Reviver, has_crashed
from tests.integration.provider_agent.conftest import Bob, eventually
from tests.integration.provider_agent.fake_server import FakeServer
from tests.integration.provider_agent.updating.installation import Installation, installed, stop

pytestmark = pytest.mark.skipif(choose_way() != "background", reason="systemd runs here; it does this itself")
KEEPER_SECONDS = 6.0  # two looks and more: in this time it would have begun to wait


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Installation]:
    """Two nodes of one installation, each with its keeper, as `service start` leaves them."""
    with installed(tmp_path, "bob-1", "bob-2") as made:
        for folder in made.nodes():
            updater_service.start_keeper(made.prefix, folder)
        yield made
        for folder in made.nodes():
            updater_service.stop_keeper(made.prefix, folder)
        print((made.prefix.root / "updater.log").read_text())


def pid_of(folder: DataFolder) -> int:
    return int((folder.root / "agent.pid").read_text())


def log_of(made: Installation) -> str:
    return (made.prefix.root / "updater.log").read_text()


def test_an_agent_that_crashed_is_brought_back_and_one_that_was_stopped_is_not(kept: Installation) -> None:
    first, second = kept.nodes()
    before = pid_of(first)
    os.kill(before, signal.SIGKILL)
    stop(second)
    eventually(lambda: is_running(first) and pid_of(first) != before, "the crashed agent to be back", 30)
    assert log_of(kept).count(f"The agent of {first.root} crashed") >= 1
    time.sleep(KEEPER_SECONDS)
    again = pid_of(first)
    psutil.Process(again).terminate()  # by hand, as without systemd one does
    time.sleep(KEEPER_SECONDS + 3)
    assert (is_running(first), is_running(second)) == (False, False)
    assert str(second.root) not in log_of(kept)


def test_two_keepers_bring_an_agent_back_once(kept: Installation) -> None:
    first, _ = kept.nodes()
    before = pid_of(first)
    os.kill(before, signal.SIGKILL)  # it may hold its lock for a moment yet
    eventually(lambda: is_running(first) and pid_of(first) != before, "the agent to be back", 30)
    back = pid_of(first)
    time.sleep(KEEPER_SECONDS)
    assert (pid_of(first), psutil.pid_exists(back)) == (back, True), "nobody started it over"


def test_nothing_is_started_beside_an_update(tmp_path: Path) -> None:
    with installed(tmp_path, "bob-1") as made:
        (folder,) = made.nodes()
        os.kill(pid_of(folder), signal.SIGKILL)
        eventually(lambda: has_crashed(folder.root), "the crash to be seen")
        words = ["-m", "provider_agent.updating", "revive"]
        words += ["--prefix", str(made.prefix.root), "--data", str(folder.root)]
        with made.prefix.only_updater():
            subprocess.run([sys.executable, *words], check=True)
        assert not is_running(folder)
        subprocess.run([sys.executable, *words], check=True)
        assert is_running(folder)


def test_it_waits_longer_each_time_gives_up_and_forgets_after_a_steady_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent.pid").write_text(f"{2**22 + 1}\n")  # nobody's: above the kernel's largest
    reviver, tries, now = Reviver(), [], 0.0
    while now < 24 * 3600:
        if reviver.due([tmp_path], now):
            tries.append(now)
        now += 2.0
    gaps = [after - before for before, after in pairwise(tries)]
    assert len(tries) == TRIES_MAX
    assert gaps == sorted(gaps)
    assert (tries[0] >= 5, gaps[0] >= 10, gaps[-1] >= WAIT_SECONDS_MAX) == (True, True, True)
    assert reviver.has_given_up(tmp_path)
    with (tmp_path / "agent.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # somebody started it by hand
        reviver.due([tmp_path], now)
        reviver.due([tmp_path], now + STEADY_SECONDS)
    assert not reviver.has_given_up(tmp_path)
    assert not reviver.due([tmp_path], now + STEADY_SECONDS + 2), "it waits first"
    assert reviver.due([tmp_path], now + STEADY_SECONDS + 8) == [tmp_path]


@pytest.mark.parametrize(("status", "is_left"), [("0", True), ("2", True), ("4", True), ("1", False), ("5", False)])
def test_how_an_agent_ended_says_whether_it_crashed(tmp_path: Path, status: str, is_left: bool) -> None:
    (tmp_path / "agent.pid").write_text(f"{2**22 + 1}\n")
    (tmp_path / "agent.ended").write_text(f"{status}\n")
    assert has_crashed(tmp_path) is not is_left
    (tmp_path / "agent.pid").write_text(f"{2**22 + 1}\n")  # a newer agent, which left no note
    os.utime(tmp_path / "agent.ended", (1, 1))
    assert has_crashed(tmp_path)
    (tmp_path / "agent.pid").write_text(f"{os.getpid()}\n")
    assert has_crashed(tmp_path), "somebody who was given its number is not the agent"
    (tmp_path / "agent.pid").unlink()
    assert not has_crashed(tmp_path), "no service keeps it"


@pytest.mark.parametrize(
    ("end", "is_crash"),
    [(psutil.Process.terminate, False), (psutil.Process.kill, True)],
    ids=["SIGTERM", "SIGKILL"],
)
def test_a_real_agent_leaves_a_note_unless_it_is_killed(
    server: FakeServer, tmp_path: Path, end: Callable[[psutil.Process], None], is_crash: bool
) -> None:
    bob = Bob(server, tmp_path / "bob")
    bob.enrol()
    program = tmp_path / "souk-agent"
    program.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(str(Path(__file__).parents[4]))}\n"
        f'exec {shlex.quote(sys.executable)} -m provider_agent "$@"\n'
    )
    program.chmod(0o755)
    assert bob.run("service", "start", "--program", str(program)).returncode == 0
    eventually(bob.folder.status.exists, "its first word")
    end(psutil.Process(pid_of(bob.folder)))
    eventually(lambda: not is_running(bob.folder), "the agent to end")
    eventually(lambda: has_crashed(bob.data) or bob.folder.ended.exists(), "its note, or none")
    assert has_crashed(bob.data) is is_crash
