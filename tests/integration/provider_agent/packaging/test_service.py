"""Where systemd is not process 1 the agent runs in the background: started anew, stopped, and nothing left of it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from provider_agent.packaging.service import choose_way, is_running
from tests.integration.provider_agent.conftest import Bob, eventually
from tests.integration.provider_agent.fake_server import FakeServer

pytestmark = pytest.mark.skipif(choose_way() != "background", reason="systemd runs here; its units are not the tests'")

# Holds the lock of a data folder as an agent does: this project's own folders are not everybody's to read.
SYSTEM_PYTHON = "/usr/bin/python3"
HOLD = 'lock = open(sys.argv[1] + "/agent.lock", "a"); fcntl.flock(lock, fcntl.LOCK_EX); time.sleep(60)'


@pytest.fixture
def bob(server: FakeServer, tmp_path: Path) -> Bob:
    made = Bob(server, tmp_path / "bob")
    made.enrol()
    return made


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """An installed souk-agent."""
    path = tmp_path / "souk-agent"
    path.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(str(Path(__file__).parents[4]))}\n"
        f'exec {shlex.quote(sys.executable)} -m provider_agent "$@"\n'
    )
    path.chmod(0o755)
    return path


def test_a_service_starts_is_replaced_and_leaves_nothing(
    bob: Bob, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://alice:secret@proxy:3128")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    try:
        done = bob.run("service", "start", "--program", str(program))
        assert done.returncode == 0, done.stderr
        assert "systemd is not process 1 here" in done.stdout
        assert "secret" not in done.stdout
        first = int((bob.data / "agent.pid").read_text())
        assert is_running(bob.folder)
        assert 'HTTPS_PROXY="http://alice:secret@proxy:3128"' in (bob.data / "agent.env").read_text()
        assert (bob.data / "agent.env").stat().st_mode & 0o077 == 0
        assert (bob.data / "agent.log").stat().st_mode & 0o077 == 0
        bob.run("service", "start", "--program", str(program))
        assert int((bob.data / "agent.pid").read_text()) != first
        assert is_running(bob.folder)
    finally:
        stopped = bob.run("service", "stop")
    assert "is stopped" in stopped.stdout
    eventually(lambda: not is_running(bob.folder), "the agent to end")
    assert not (bob.data / "agent.pid").exists()
    assert not (bob.data / "agent.env").exists()
    assert bob.run("service", "stop").returncode == 0, "repeating it is harmless"


def test_somebody_who_was_given_the_old_number_is_left_alone(bob: Bob) -> None:
    (bob.data / "agent.pid").write_text(f"{os.getpid()}\n")
    assert bob.run("service", "stop").stdout == ""
    assert psutil.Process().is_running()
    assert not (bob.data / "agent.pid").exists()


def test_an_agent_that_does_not_start_shows_the_end_of_its_log(bob: Bob, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no such library >&2\nexit 1\n")
    broken.chmod(0o755)
    done = bob.run("service", "start", "--program", str(broken))
    assert done.returncode == 9
    assert "no such library" in done.stderr


def test_a_node_that_is_not_listed_in_time_is_a_sentence(bob: Bob) -> None:
    done = bob.run("service", "wait", "--seconds", "0")
    assert done.returncode == 9
    assert "Not listed after 0 s" in done.stderr
    assert "has not reached the marketplace yet: souk-agent doctor" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts agents of others")
def test_root_starts_the_agent_as_whom_its_data_belong_to(bob: Bob, server: FakeServer, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    home = Path(tempfile.mkdtemp(prefix="souk-owner-", dir="/tmp"))
    try:
        shutil.copytree(bob.data, home / "data")
        home.chmod(0o755)
        for path in [home / "data", *(home / "data").rglob("*")]:
            shutil.chown(path, "nobody")
        program = home / "souk-agent"
        program.write_text(
            f"#!/bin/sh\nexec {SYSTEM_PYTHON} -c 'import fcntl, os, sys, time; {HOLD}' {home}/data \"$@\"\n"
        )
        program.chmod(0o755)
        bob.data = home / "data"
        done = bob.run("service", "start", "--program", str(program))
        assert done.returncode == 0, done.stderr + (home / "data" / "agent.log").read_text()
        pid = int((home / "data" / "agent.pid").read_text())
        assert psutil.Process(pid).username() == "nobody"
        assert "\nUser=nobody\n" in bob.run("service", "unit").stdout
        assert "\nUser=root\n" in bob.run("service", "unit", "--user", "root").stdout
    finally:
        bob.run("service", "stop")
        shutil.rmtree(home)
