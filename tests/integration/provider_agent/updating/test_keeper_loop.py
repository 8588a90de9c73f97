"""The keeper's loop, look by look: what is due, what it starts, and what it leaves alone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from provider_agent.config import DataFolder
from provider_agent.packaging.prefix import Prefix, Record, Trial
from provider_agent.updating import keeper
from provider_agent.updating.reviving import TRIES_MAX
from provider_agent.updating.update_request import write_update_request


class Stopped(BaseException):
    """The keeper's process ends here: nothing in it catches this."""


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    """An installation of one proven release and one node that wants nothing."""
    made = Prefix(tmp_path / "prefix")
    release = made.releases / "0123456789ab"
    release.mkdir(parents=True)
    for link in ("current", "good"):
        (made.root / link).symlink_to(release)
    python = release / "bin" / "python"  # notes what it was started with
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\necho "$@" >> {made.root}/calls\n')
    python.chmod(0o755)
    node = DataFolder(tmp_path / "bob-1")
    node.prepare()
    (made.root / "nodes").write_text(f"{node.root}\n# not a folder\n")
    return made


def started(prefix: Prefix) -> list[list[str]]:
    """The words of each program that the keeper started, in order."""
    calls = prefix.root / "calls"
    return [line.split() for line in calls.read_text().splitlines()] if calls.exists() else []


def look(monkeypatch: pytest.MonkeyPatch, prefix: Prefix, *, times: int, between: Callable[[], object] = bool) -> None:
    """The keeper looks so many times and is ended."""
    pauses = 0

    def pause(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == times:
            raise Stopped
        between()

    monkeypatch.setattr(time, "sleep", pause)
    with pytest.raises(Stopped):
        keeper.keep(prefix.root, ["--seconds", "3"])


def node_of(prefix: Prefix) -> DataFolder:
    return DataFolder(prefix.data_folders()[0])


def end_agent(prefix: Prefix) -> None:
    """The node's agent was kept by a service and is gone without an exit status."""
    (node_of(prefix).root / "agent.pid").write_text(f"{2**22 + 1}\n")


def test_an_update_is_due_only_while_one_is_wanted_or_on_trial(prefix: Prefix) -> None:
    assert not keeper._is_due(prefix.root)
    write_update_request(node_of(prefix), "0.2.0")
    assert keeper._is_due(prefix.root)
    node_of(prefix).update_request.unlink()
    prefix.save(Record(Trial("0.2.0", "b", "0.1.0", "a", "now")))
    assert keeper._is_due(prefix.root)
    prefix.save(Record())
    assert not keeper._is_due(prefix.root)


def test_links_that_differ_are_a_trial_whatever_the_record_says(prefix: Prefix) -> None:
    other = prefix.releases / "ba9876543210"
    other.mkdir()
    prefix.point("current", other)
    assert keeper._has_trial(prefix.root)


@pytest.mark.parametrize("text", ["", "[]", "no JSON", json.dumps({"trial": None})])
def test_a_record_that_cannot_be_read_is_no_trial(prefix: Prefix, text: str) -> None:
    prefix.record_path.write_text(text)
    assert not keeper._has_trial(prefix.root)


def test_an_installation_without_nodes_has_nothing_to_do(prefix: Prefix) -> None:
    (prefix.root / "nodes").unlink()
    assert keeper._folders(prefix.root) == []
    assert not keeper._is_due(prefix.root)


def test_the_keeper_is_busy_while_an_updater_holds_the_prefix(prefix: Prefix) -> None:
    with prefix.only_updater() as is_mine:
        assert is_mine
        assert keeper._is_busy(prefix.root)
    assert not keeper._is_busy(prefix.root)


def test_a_request_is_tried_by_the_proven_release_which_then_takes_over(
    prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_update_request(node_of(prefix), "0.2.0")
    taken_over: list[list[str]] = []

    def execute(program: str, command: list[str]) -> None:
        taken_over.append(command)
        raise Stopped

    monkeypatch.setattr("os.execv", execute)
    look(monkeypatch, prefix, times=2)
    python = str(prefix.root / "good" / "bin" / "python")
    words = ["--prefix", str(prefix.root), "--seconds", "3"]
    assert started(prefix) == [["-I", "-m", "provider_agent.updating", "once", *words]]
    assert taken_over == [[python, "-I", "-m", "provider_agent.updating", "keep", *words]]


def test_a_request_that_came_to_nothing_is_tried_anew_once_it_changes(
    prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str((prefix.root / "good").resolve()))
    write_update_request(node_of(prefix), "0.2.0")
    look(monkeypatch, prefix, times=3)
    assert len(started(prefix)) == 1, "the same request waits"
    versions = iter(["0.2.1", "0.2.1"])
    look(monkeypatch, prefix, times=3, between=lambda: write_update_request(node_of(prefix), next(versions)))
    assert len(started(prefix)) == 3, "once for each keeper's start and once for the change"


def test_while_an_updater_works_the_keeper_starts_nothing(prefix: Prefix, monkeypatch: pytest.MonkeyPatch) -> None:
    write_update_request(node_of(prefix), "0.2.0")
    end_agent(prefix)
    monkeypatch.setattr("provider_agent.updating.reviving.WAIT_SECONDS_FIRST", 0.0)
    with prefix.only_updater():
        look(monkeypatch, prefix, times=3)
    assert started(prefix) == []


def test_a_crashed_agent_is_revived_until_it_is_left_alone(
    prefix: Prefix, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("provider_agent.updating.reviving.WAIT_SECONDS_FIRST", 0.0)
    end_agent(prefix)
    look(monkeypatch, prefix, times=TRIES_MAX + 3)
    data = str(node_of(prefix).root)
    assert len(started(prefix)) == TRIES_MAX
    assert started(prefix)[0][3:] == ["revive", "--prefix", str(prefix.root), "--data", data]
    printed = capsys.readouterr().err
    assert printed.count(f"The agent of {data} crashed and is started again.") == TRIES_MAX
    assert printed.count("left alone after 10 times in a row") == 1


def test_the_keeper_survives_an_interpreter_that_is_gone(
    prefix: Prefix, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its release was removed under it: nothing is started, the cause is printed, and it looks again."""
    (prefix.root / "good" / "bin" / "python").unlink()
    write_update_request(node_of(prefix), "0.2.0")
    look(monkeypatch, prefix, times=2)
    assert capsys.readouterr().err.count("The keeper goes on after") == 2
