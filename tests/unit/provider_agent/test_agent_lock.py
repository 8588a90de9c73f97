"""One agent a data folder, and who only looks keeps none from starting."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from provider_agent.errors import AgentAlreadyRuns
from provider_agent.system import agent_lock
from provider_agent.system.agent_lock import hold_agent_lock, is_agent_lock_held


def test_a_second_agent_is_refused_and_the_lock_is_seen(tmp_path: Path) -> None:
    lock = tmp_path / "agent.lock"
    assert not is_agent_lock_held(lock)
    with hold_agent_lock(lock):
        assert is_agent_lock_held(lock)
        with pytest.raises(AgentAlreadyRuns), hold_agent_lock(lock):
            pass
    assert not is_agent_lock_held(lock)


def test_a_pipe_or_a_link_in_the_place_of_the_lock_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not is_agent_lock_held(tmp_path / "pipe")
    lock = tmp_path / "another.lock"
    (tmp_path / "link").symlink_to(lock)
    with hold_agent_lock(lock):
        assert not is_agent_lock_held(tmp_path / "link")


def test_an_agent_that_starts_while_somebody_looks_waits_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_lock, "LOOK_SECONDS_MAX", 20.0)
    lock = tmp_path / "agent.lock"
    looks = threading.Event()

    def look() -> None:
        with hold_agent_lock(lock):
            looks.set()
            time.sleep(0.2)  # it was preempted between taking the lock and letting go

    looker = threading.Thread(target=look)
    looker.start()
    assert looks.wait(20)
    with hold_agent_lock(lock):
        assert is_agent_lock_held(lock)
    looker.join(20)
