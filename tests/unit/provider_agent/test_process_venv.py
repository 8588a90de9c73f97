"""The runtime environment is whole or not there, and one from before serving is added to instead of built anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from provider_agent import process_venv
from provider_agent.config import DataFolder
from provider_agent.errors import RuntimeUnavailable
from provider_agent.process_venv import COMPLETE_NAME, build_environment, environment_python, is_built

OWN = "gpusouk[train,serve]==0"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would have been run, which take gigabytes."""
    ran: list[list[str]] = []

    def step(command: list[str], _say: object) -> None:
        ran.append(command)
        if command[1:3] == ["-m", "venv"]:
            Path(command[3]).mkdir(parents=True)

    monkeypatch.setattr(process_venv, "_step", step)
    monkeypatch.setattr(process_venv, "_own_requirement", lambda: OWN)
    return ran


def test_new_one_gets_torch_and_both_runtimes(tmp_path: Path, steps: list[list[str]]) -> None:
    folder = DataFolder(tmp_path)
    assert not is_built(folder)
    build_environment(folder, lambda _line: None)
    assert is_built(folder)
    assert [command[-1].partition("==")[0] for command in steps[1:]] == ["torch", "gpusouk[train,serve]"]
    steps.clear()
    build_environment(folder, lambda _line: None)
    assert steps == []


def test_one_from_before_serving_is_added_to(tmp_path: Path, steps: list[list[str]]) -> None:
    folder = DataFolder(tmp_path)
    environment = environment_python(folder).parent.parent
    environment.mkdir(parents=True)
    (environment / COMPLETE_NAME).touch()  # as earlier agents marked it
    assert not is_built(folder)
    build_environment(folder, lambda _line: None)
    assert is_built(folder)
    assert [command[-1] for command in steps] == [OWN]


def test_half_built_one_is_begun_anew(tmp_path: Path, steps: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = DataFolder(tmp_path)
    environment = environment_python(folder).parent.parent
    environment.mkdir(parents=True)
    (environment / "half").touch()
    build_environment(folder, lambda _line: None)
    assert not (environment / "half").exists()


def test_source_checkout_says_what_to_do_before_anything_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> str:
        raise RuntimeUnavailable("source checkout")

    monkeypatch.setattr(process_venv, "_own_requirement", absent)
    with pytest.raises(RuntimeUnavailable):
        build_environment(DataFolder(tmp_path), lambda _line: None)
    assert not list(tmp_path.iterdir())
