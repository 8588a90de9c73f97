"""Commands that messages tell people to run."""

from __future__ import annotations

import asyncio
import re
import shlex
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import typer

from provider_agent.cli import app
from provider_agent.commands.known_folders import find_node
from provider_agent.config import DataFolder, load_config
from provider_agent.errors import AgentError
from provider_agent.node.doctor import examine
from provider_agent.process_venv import _own_requirement


def assert_runs_as_typed(text: str) -> None:
    """Every `souk-agent enrol ...` of a message has all that its parser demands."""
    found = re.findall(r"souk-agent (enrol[^`]*)", text)
    assert found, text
    for command in found:
        name, *words = shlex.split(command)
        typer.main.get_command(app).commands[name].make_context(name, words)  # type: ignore[attr-defined]


def test_the_command_that_a_folder_without_a_node_names_runs_as_typed(tmp_path: Path) -> None:
    with pytest.raises(AgentError) as caught:
        load_config(DataFolder(tmp_path))
    assert_runs_as_typed(str(caught.value))
    with pytest.raises(AgentError) as caught:
        find_node(tmp_path, known=[])
    assert_runs_as_typed(str(caught.value))


def test_the_command_that_doctor_names_runs_as_typed(tmp_path: Path) -> None:
    finding = asyncio.run(examine(DataFolder(tmp_path)))[0]
    assert_runs_as_typed(finding.fix)


def test_the_command_that_names_an_interpreter_runs_as_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr("provider_agent.process_venv.distribution", unknown)
    with pytest.raises(AgentError) as caught:
        _own_requirement()
    assert_runs_as_typed(str(caught.value))
