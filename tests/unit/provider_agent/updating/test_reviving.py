"""Which agents count as crashed, and when each is started again."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from provider_agent.updating.reviving import (
    STEADY_SECONDS,
    TRIES_MAX,
    WAIT_SECONDS_FIRST,
    WAIT_SECONDS_MAX,
    Reviver,
    ended_with,
    has_crashed,
)

NO_PROCESS = 2**22 + 1  # above every process id


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of an agent that a service keeps, and that is gone."""
    (tmp_path / "agent.pid").write_text(f"{NO_PROCESS}\n")
    return tmp_path


def test_an_agent_that_left_no_exit_status_has_crashed(data: Path) -> None:
    (data / "agent.lock").touch()
    assert ended_with(data) == ""
    assert has_crashed(data)


@pytest.mark.parametrize("pid", ["", "not a number"])
def test_an_agent_that_no_service_keeps_is_left_alone(data: Path, pid: str) -> None:
    (data / "agent.pid").write_text(pid)
    assert not has_crashed(data)
    (data / "agent.pid").unlink()
    assert not has_crashed(data)


@pytest.mark.parametrize(("status", "is_crash"), [("0", False), ("4", False), ("130", False), ("1", True)])
def test_the_exit_status_decides_whether_it_crashed(data: Path, status: str, is_crash: bool) -> None:
    (data / "agent.ended").write_text(status)
    assert has_crashed(data) is is_crash


def test_the_exit_status_of_the_agent_before_does_not_count(data: Path) -> None:
    (data / "agent.ended").write_text("0")
    os.utime(data / "agent.ended", (1, 1))
    assert ended_with(data) == ""
    assert has_crashed(data)


def test_an_exit_status_behind_a_link_is_not_read(data: Path) -> None:
    (data / "elsewhere").write_text("0")
    (data / "agent.ended").symlink_to(data / "elsewhere")
    assert ended_with(data) == ""


def test_an_agent_that_holds_its_lock_has_not_crashed(data: Path) -> None:
    with (data / "agent.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not has_crashed(data)
    assert has_crashed(data)


def test_another_process_with_the_old_number_is_not_the_agent(data: Path) -> None:
    (data / "agent.pid").write_text(f"{os.getpid()}\n")
    assert has_crashed(data)


def test_each_try_waits_longer_until_the_last_one(data: Path) -> None:
    reviver, now, tries, waits = Reviver(), 1000.0, 0, []
    assert reviver.due([data], now) == [], "the first wait begins"
    while not tries or not reviver.has_given_up(data):
        before = now
        while not reviver.due([data], now):
            now += 1
        tries += 1
        waits.append(now - before)
    assert tries == TRIES_MAX
    assert waits[0] == WAIT_SECONDS_FIRST
    assert waits == sorted(waits)
    assert waits[-1] == WAIT_SECONDS_MAX
    assert reviver.due([data], now + 10 * WAIT_SECONDS_MAX) == [], "it is left alone"


def test_an_agent_that_was_up_for_long_has_all_its_tries_again(data: Path) -> None:
    reviver, now = Reviver(), 1000.0
    reviver.due([data], now)
    for _ in range(TRIES_MAX):
        now += WAIT_SECONDS_MAX
        assert reviver.due([data], now) == [data]
    (data / "agent.ended").write_text("0")
    reviver.due([data], now)
    reviver.due([data], now + STEADY_SECONDS)
    assert not reviver.has_given_up(data)
