"""What a program of its own reports, as the marketplace reads it; and that a mistake in it is said."""

from __future__ import annotations

import ast
import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.running.curve_points import STEP_MAX, read_readings
from runtimes import contract, reporting


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the program's events lie, as the agent says it."""
    path = tmp_path / "events.jsonl"
    path.touch()
    monkeypatch.setenv("SOUK_EVENTS", str(path))
    monkeypatch.setenv("SOUK_CHECKPOINT_DIR", str(tmp_path / "checkpoint"))
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(reporting, "_pacing", reporting._Pacing())
    yield path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_it_stands_alone_and_agrees_with_the_contract() -> None:
    tree = ast.parse(Path(reporting.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        name.split(".")[0]
        for node in imports
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert names - set(sys.stdlib_module_names) == {"transformers"}  # where the callback is asked for
    assert reporting.NAME.pattern == contract.METRIC_NAME.pattern
    assert reporting.STEP_MAX == STEP_MAX
    assert (reporting._MANIFEST, reporting._PREFIX) == (contract.MANIFEST_NAME, contract.CHECKPOINT_PREFIX)


def test_a_step_is_read_as_it_was_reported(events: Path) -> None:
    reporting.report(7, loss=torch.tensor(2.5), seconds=0.5, gradient_norm=1, accuracy=0.25, **{"rewards/mean": 3})
    (event,) = read(events)
    figures = {"loss": 2.5, "seconds_per_step": 0.5, "gradient_norm": 1.0, "accuracy": 0.25, "rewards/mean": 3.0}
    assert (event["step"], read_readings(event)) == (7, figures)


def test_an_evaluation_is_read_as_one(events: Path) -> None:
    reporting.evaluated(7, loss=2, perplexity=math.exp(2))
    (event,) = read(events)
    assert read_readings(event) == {"evaluation_loss": 2.0, "perplexity": pytest.approx(math.exp(2))}


def test_a_figure_that_is_not_finite_is_left_out(events: Path) -> None:
    reporting.report(1, loss=float("nan"), accuracy=torch.tensor(float("inf")), mfu=0.5)
    assert read_readings(read(events)[0]) == {"mfu": 0.5}


@pytest.mark.parametrize("step", [-1, 1.5, "1", True, None, 10**12])
def test_a_step_that_cannot_be_is_refused_in_words(events: Path, step: Any) -> None:
    with pytest.raises(ValueError, match="pass a whole number"):
        reporting.report(step, loss=1.0)
    assert read(events) == []


@pytest.mark.parametrize("value", ["high", [1, 2], torch.zeros(2), {}, 10**31])
def test_what_is_no_figure_is_refused_by_name(events: Path, value: Any) -> None:
    with pytest.raises(ValueError, match="accuracy"):
        reporting.report(1, accuracy=value)
    assert read(events) == []


@pytest.mark.parametrize("name", ["", "1st", "a b", "a" * 41, "größe"])
def test_a_name_that_cannot_be_is_refused(events: Path, name: str) -> None:
    with pytest.raises(ValueError, match="a name is a letter"):
        reporting.report(1, **{name: 1.0})


def test_outside_of_souk_nothing_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SOUK_EVENTS", raising=False)
    monkeypatch.chdir(tmp_path)
    reporting.report(1, loss=1.0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("variable", ["RANK", "SOUK_NODE_RANK"])
def test_ranks_but_the_first_report_nothing(events: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    reporting.report(1, loss=1.0)
    monkeypatch.setenv(variable, "0")
    reporting.report(2, loss=1.0)
    assert [event["step"] for event in read(events)] == [2]


def test_after_many_steps_some_are_written_and_always_the_last(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "STEPS_AT_ONCE", 10)
    monkeypatch.setattr(reporting, "_pacing", reporting._Pacing())
    for step in range(1, 51):
        reporting.report(step, loss=1.0)
    assert [event["step"] for event in read(events)] == list(range(1, 11))
    reporting.evaluated(50, loss=1.0)
    assert [(event["event"], event["step"]) for event in read(events)[10:]] == [("step", 50), ("evaluated", 50)]


def test_a_disk_that_is_full_ends_no_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOUK_EVENTS", "/dev/full")
    monkeypatch.setattr(reporting, "_has_warned", [False])
    for step in (1, 2):
        reporting.report(step, loss=1.0)
    assert capsys.readouterr().err.count("cannot be written") == 1


def test_a_checkpoint_is_whole_by_the_contract_and_old_ones_go(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOUK_CHECKPOINT_KEEP", "2")
    root = tmp_path / "checkpoint"
    for step in (10, 20, 30):
        with reporting.checkpoint(step) as folder:
            (folder / "deep").mkdir()
            (folder / "deep" / "state.pt").write_bytes(os.urandom(99))
            assert folder not in contract.complete_checkpoints(root)
    assert contract.complete_checkpoints(root) == [contract.checkpoint_folder(root, step) for step in (20, 30)]
    newest = contract.checkpoint_folder(root, 30)
    assert contract.read_manifest(newest)["files"] == [entry.__dict__ for entry in contract.list_files(newest)]
    assert [event["step"] for event in read(events)] == [10, 20, 30]


def test_the_newest_checkpoint_is_the_highest_step_and_not_text(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOUK_CHECKPOINT_KEEP", "2")
    root = tmp_path / "checkpoint"
    for step in (99_999_998, 99_999_999, 100_000_000):
        with reporting.checkpoint(step) as folder:
            (folder / "state.pt").write_bytes(b"state")
    steps = [contract.checkpoint_step(path) for path in contract.complete_checkpoints(root)]
    assert steps == [99_999_999, 100_000_000]


@pytest.mark.parametrize("keep", ["1", "2"])
def test_a_checkpoint_of_an_earlier_step_is_kept_when_it_is_written(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str
) -> None:
    monkeypatch.setenv("SOUK_CHECKPOINT_KEEP", keep)
    for step in (20, 30, 10):
        with reporting.checkpoint(step) as folder:
            (folder / "state.pt").write_bytes(b"state")
    found = [contract.checkpoint_step(path) for path in contract.complete_checkpoints(tmp_path / "checkpoint")]
    assert found == [10, 30][: int(keep)]


def test_a_checkpoint_that_failed_is_none(events: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), reporting.checkpoint(10) as folder:
        (folder / "state.pt").write_bytes(b"half")
        raise RuntimeError
    assert contract.complete_checkpoints(tmp_path / "checkpoint") == []
    with reporting.checkpoint(10) as folder:
        (folder / "other.pt").write_bytes(b"whole")
    assert [entry["path"] for entry in contract.read_manifest(folder)["files"]] == ["other.pt"]


def test_a_checkpoint_is_due_as_the_job_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOUK_CHECKPOINT_EVERY_STEPS", "50")
    assert [step for step in range(201) if reporting.is_checkpoint_due(step)] == [50, 100, 150, 200]
    monkeypatch.setenv("SOUK_CHECKPOINT_EVERY_STEPS", "0")
    monkeypatch.setenv("SOUK_CHECKPOINT_EVERY_SECONDS", "3600")
    assert not reporting.is_checkpoint_due(50)
    monkeypatch.setattr(reporting, "_saved", [reporting._saved[0] - 3600])
    assert reporting.is_checkpoint_due(50)


@pytest.mark.parametrize(
    ("name", "package"), [("SoukCallback", "transformers"), ("SoukLightningCallback", "lightning")]
)
def test_a_callback_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    for missing in (package, "lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, missing, None)  # importing it raises ImportError
    monkeypatch.delitem(reporting.__dict__, name, raising=False)
    with pytest.raises(ImportError, match=f"{name} needs a package .*pip install {package}"):
        getattr(reporting, name)
    with pytest.raises(AttributeError):
        reporting.SoukOther  # noqa: B018
