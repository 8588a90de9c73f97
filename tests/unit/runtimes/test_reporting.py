"""What a program of its own reports, as the marketplace reads it; and that a mistake in it is said."""

from __future__ import annotations

import ast
import itertools
import json
import math
import os
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.running.curve_points import STEP_MAX, VALUE_MAX, read_readings
from jobs.running.streams import STREAM_BYTES_MAX
from runtimes import contract, reporting


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the program's events lie, as the agent says it."""
    path = tmp_path / "events.jsonl"
    path.touch()
    monkeypatch.setenv("SOUK_EVENTS", str(path))
    monkeypatch.setenv("SOUK_CHECKPOINT_DIR", str(tmp_path / "checkpoint"))
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("SOUK_NODE_RANK", raising=False)
    monkeypatch.setattr(reporting, "_pacing", reporting._Pacing())
    monkeypatch.setattr(reporting, "_written", [0])
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


def test_a_figure_that_cannot_be_is_refused_outside_of_souk_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOUK_EVENTS", raising=False)
    for wrong in (True, 1e31):
        with pytest.raises(ValueError, match=r"loss(=True)?: pass"):
            reporting.report(1, loss=wrong)
        with pytest.raises(ValueError, match="accuracy"):
            reporting.evaluated(1, accuracy=wrong)
    with pytest.raises(TypeError):
        reporting.started(steps_total=3, fact=1)  # type: ignore[call-arg]


def test_a_figure_of_any_name_is_written(events: Path) -> None:
    reporting.report(1, kind=1, line=2, event=3)
    assert read_readings(read(events)[0]) == {"kind": 1.0, "line": 2.0, "event": 3.0}


def test_a_step_is_read_as_it_was_reported(events: Path) -> None:
    reporting.report(7, loss=torch.tensor(2.5), seconds=0.5, gradient_norm=1, accuracy=0.25, **{"rewards/mean": 3})
    (event,) = read(events)
    figures = {"loss": 2.5, "seconds_per_step": 0.5, "gradient_norm": 1.0, "accuracy": 0.25, "rewards/mean": 3.0}
    assert (event["step"], read_readings(event)) == (7, figures)


def test_an_evaluation_is_read_as_one(events: Path) -> None:
    reporting.evaluated(7, loss=2, perplexity=math.exp(2))
    (event,) = read(events)
    assert read_readings(event) == {"evaluation_loss": 2.0, "evaluation_perplexity": pytest.approx(math.exp(2))}


def test_a_figure_that_is_not_finite_is_left_out(events: Path) -> None:
    reporting.report(1, loss=float("nan"), accuracy=torch.tensor(float("inf")), mfu=0.5)
    assert read_readings(read(events)[0]) == {"mfu": 0.5}


@pytest.mark.parametrize("step", [-1, 1.5, "1", True, None, 10**12])
def test_a_step_that_cannot_be_is_refused_in_words(events: Path, step: Any) -> None:
    with pytest.raises(ValueError, match="pass a whole number"):
        reporting.report(step, loss=1.0)
    assert read(events) == []


@pytest.mark.parametrize("value", ["high", [1, 2], torch.zeros(2), {}, 10**31, -(10**400), 1e31, True])
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


class Clock:
    """Seconds that pass as the test says."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What the pacing reads in place of the system's clock: weeks pass in a second."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_the_bytes_that_are_kept_are_those_of_the_marketplace() -> None:
    assert (reporting.BYTES_MAX, reporting.VALUE_MAX) == (STREAM_BYTES_MAX, VALUE_MAX)


def test_after_many_bytes_some_steps_are_written_and_always_the_last(
    events: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(reporting, "BYTES_AT_ONCE", 1_000)
    for step in range(1, 101):
        clock.now += 1
        reporting.report(step, loss=1.0)
    steps = [event["step"] for event in read(events)]
    at_once = next(index for index, step in enumerate(steps, start=1) if steps[index] != step + 1)
    assert 10 < at_once < 20, "as they come"
    assert {after - before for before, after in itertools.pairwise(steps[at_once:])} == {5}, "one in five seconds"
    reporting.flush()
    assert read(events)[-1]["step"] == 100


def test_an_evaluation_comes_after_the_step_that_waits(
    events: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(reporting, "BYTES_AT_ONCE", 0)
    for step in range(1, 4):
        reporting.report(step, loss=1.0)
    reporting.evaluated(3, loss=1.0)
    assert [(event["event"], event["step"]) for event in read(events)] == [("step", 1), ("step", 3), ("evaluated", 3)]


@pytest.mark.parametrize("metrics", [0, 20])
def test_events_of_any_length_stay_below_what_is_kept_and_have_the_last(
    events: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, metrics: int
) -> None:
    monkeypatch.setattr(reporting, "BYTES_AT_ONCE", 20_000)
    monkeypatch.setattr(reporting, "BYTES_MAX", 40_000)
    own = {f"own_{number}": 0.125 for number in range(metrics)}
    for step in range(1, 20_001):
        clock.now += 60
        reporting.report(step, loss=1.0, **own)
        reporting.evaluated(step, loss=1.0, **own)
    reporting.flush()
    size, found = events.stat().st_size, read(events)
    assert 30_000 < size < 40_000
    assert {event["event"] for event in found if event["step"] == 20_000} == {"step", "evaluated"}
    for step in range(1_000):
        reporting.checkpointed(step)
    assert size < events.stat().st_size <= 40_000


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
    monkeypatch.setattr(reporting, "_saved", [time.monotonic()])
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


def test_a_callback_can_be_pickled() -> None:
    pytest.importorskip("transformers")
    assert pickle.loads(pickle.dumps(reporting.SoukCallback)) is reporting.SoukCallback
    assert isinstance(pickle.loads(pickle.dumps(reporting.SoukCallback())), reporting.SoukCallback)


def test_names_of_an_evaluation_lose_only_what_says_that_they_are_of_one() -> None:
    found = {"eval_f1": 1.0, "eval_step": 2.0, "eval_9": 3.0, "eval_a": 4.0, "a": 5.0}
    short = {"f1": 1.0, "eval_step": 2.0, "eval_9": 3.0, "eval_a": 4.0, "a": 5.0}
    assert reporting._without_prefix(found, "eval_") == short
