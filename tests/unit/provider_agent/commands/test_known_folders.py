"""Which data folder a command is about, where --data does not name it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from typer.testing import CliRunner

from provider_agent.cli import app
from provider_agent.commands import known_folders
from provider_agent.config import DataFolder
from provider_agent.errors import NotEnrolled

MALLORY = 54_321  # a user id that owns nothing else here
CHANGES = (["drain"], ["resume"], ["price", "0.01"], ["schedule", "--hours", "always"], ["update", "--hold"])


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only node of this computer, which belongs to another user, and no node in the usual folder."""
    folder = node_in(tmp_path / "mallorys")
    monkeypatch.setattr(known_folders, "default_data_folder", lambda: DataFolder(tmp_path / "usual"))
    monkeypatch.setattr(known_folders, "known_folders", lambda: iter([folder]))
    monkeypatch.setattr(os, "geteuid", lambda: MALLORY)
    return folder


@pytest.mark.parametrize("words", CHANGES, ids=lambda words: words[0])
def test_a_command_that_changes_a_node_leaves_another_users_node_alone(foreign: Path, words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == NotEnrolled.exit_code, done.output
    assert f"--data {foreign}" in done.output
    assert "belongs to" in done.output


def test_a_command_that_only_shows_takes_the_only_node_whoever_owns_it(foreign: Path) -> None:
    assert known_folders.find_node(None).root == foreign


def test_a_named_folder_is_taken_whoever_owns_it(foreign: Path) -> None:
    assert known_folders.find_node(foreign, for_change=True).root == foreign


def test_ones_own_node_is_found_for_a_change(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: foreign.stat().st_uid)
    assert known_folders.find_node(None, for_change=True).root == foreign


def test_a_folder_that_may_not_be_looked_into_may_hold_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of Python 3.14 Path.is_file answers False instead of raising PermissionError."""
    folder = node_in(tmp_path / "closed")
    monkeypatch.setattr(Path, "is_file", lambda self: False)
    assert known_folders.find_node(folder).root == folder

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "stat", refuse)
    assert known_folders.find_node(folder).root == folder


def test_a_process_that_ends_meanwhile_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanish() -> None:
        raise FileNotFoundError("/proc/1/cmdline")

    def refuse() -> None:
        raise psutil.AccessDenied

    folder = node_in(tmp_path / "running")
    command = ["souk-agent", "start", "--data", str(folder)]
    processes = [SimpleNamespace(cmdline=vanish, cwd=vanish), SimpleNamespace(cmdline=lambda: command, cwd=refuse)]
    monkeypatch.setattr(psutil, "process_iter", lambda: processes)
    assert folder in known_folders.known_folders()


def node_in(folder: Path) -> Path:
    """A data folder that looks enrolled."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder
