"""Real trainers that report: the file alone beside a script, and Lightning where it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.running.curve_points import read_readings

REPOSITORY = Path(__file__).parents[3]
SLOW_EVALUATION = """
import time
import hf_reporting

class Slow(hf_reporting.Counting):
    def __getitem__(self, index):
        time.sleep(0.05 * (self.size == 64))
        return super().__getitem__(index)

hf_reporting.Counting = Slow
hf_reporting.main()
"""
LIGHTNING = """
import sys
import time
import torch
import souk_report as souk
pl = souk.importlib.import_module(sys.argv[1])


class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        loss = (self.layer(batch) - 2 * batch).square().mean()
        self.log("accuracy", 1 / (1 + loss))
        self.log("train_loss", loss + 100, on_step=False, on_epoch=True)
        self.log("whole", loss, on_step=False, on_epoch=True)
        self.log("constant", 7.0)
        return loss

    def validation_step(self, batch, index):
        time.sleep(0.15)
        self.log("val_loss", (self.layer(batch) - 2 * batch).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(0)
data = torch.utils.data.DataLoader(torch.randn(320, 1), batch_size=16)
trainer = pl.Trainer(
    max_epochs=3, log_every_n_steps=5, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, accumulate_grad_batches=2, callbacks=[souk.SoukLightningCallback()],
)
trainer.fit(Line(), data, data)
"""


def run(folder: Path, command: list[str]) -> list[dict[str, Any]]:
    """The events of a program that finds the one file beside itself, and nothing else of ours."""
    written = subprocess.run(
        [sys.executable, "-m", "runtimes.reporting"], cwd=REPOSITORY, check=True, capture_output=True
    )
    (folder / "input" / "souk_report.py").write_bytes(written.stdout)
    # What the tests found a package by, without the repository: `runtimes` must not be importable.
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry != str(REPOSITORY)]
    environment = os.environ | {
        "SOUK_EVENTS": str(folder / "events.jsonl"),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path),
    }
    ended = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def seconds_between(first: dict[str, Any], last: dict[str, Any]) -> float:
    """By the times that stand in two events."""
    return float(last["at"] - first["at"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A work folder."""
    (tmp_path / "input").mkdir()
    return tmp_path


@pytest.mark.soak  # an agent runs the same example in test_own_reports
def test_a_hugging_face_trainer_reports_its_losses(folder: Path) -> None:
    shutil.copy(REPOSITORY / "examples" / "hf_reporting.py", folder / "input")
    (folder / "input" / "slow.py").write_text(SLOW_EVALUATION)
    events = run(folder, ["input/slow.py", "--steps", "40"])
    assert (events[0]["event"], events[0]["steps_total"]) == ("started", 40)
    steps = [event for event in events if event["event"] == "step"]
    assert [event["step"] for event in steps] == list(range(5, 41, 5))
    readings = [read_readings(event) for event in steps]
    assert all(each.keys() >= {"loss", "learning_rate", "gradient_norm", "seconds_per_step"} for each in readings)
    assert readings[-1]["loss"] < readings[0]["loss"]
    assert readings[4]["seconds_per_step"] < seconds_between(steps[3], steps[4]) / 5 - 0.5, "an evaluation is no step's"
    evaluations = [event for event in events if event["event"] == "evaluated"]
    assert [event["step"] for event in evaluations] == [20, 40]
    assert 0 < read_readings(evaluations[1])["evaluation_loss"] < read_readings(evaluations[0])["evaluation_loss"]
    assert "train_loss" not in json.dumps(events), "a trainer's summary is no step"


def test_a_lightning_trainer_reports_its_losses(folder: Path) -> None:
    name = "lightning.pytorch"
    try:
        __import__(name)
    except ImportError:
        name = "pytorch_lightning"
        pytest.importorskip(name)
    (folder / "input" / "line.py").write_text(LIGHTNING)
    events = run(folder, ["input/line.py", name])
    assert (events[0]["event"], events[0]["steps_total"]) == ("started", 30)
    steps = [event for event in events if event["event"] == "step"]
    assert [event["step"] for event in steps] == [5, 10, 15, 20, 25, 30, 30], "a step is one of the optimizer"
    readings = [read_readings(event) for event in steps]
    every_step = {"loss", "learning_rate", "seconds_per_step", "accuracy", "constant"}
    of_epochs = [event["step"] for event, each in zip(steps, readings, strict=True) if "whole" in each]
    assert of_epochs == [15, 25, 30], "once after the epoch, and the last one's at the end"
    readings = [each for each in readings if "loss" in each]
    assert all(each.keys() - {"whole"} == every_step for each in readings)
    assert readings[-1]["loss"] < readings[0]["loss"]
    # The 20 batches of an evaluation sleep for 3 seconds: 0.6 of each of the five steps after it.
    for number in (2, 4):
        passed = seconds_between(steps[number - 1], steps[number]) / 5
        assert readings[number]["seconds_per_step"] < passed - 0.5, "an evaluation is no step's time"
    for each in readings:
        assert each["loss"] == pytest.approx(1 / each["accuracy"] - 1, rel=1e-2), "the whole loss of the batch"
    evaluations = [(event["step"], event["loss"]) for event in events if event["event"] == "evaluated"]
    assert [step for step, _ in evaluations] == [10, 20, 30], "and the sanity check is no evaluation"
    assert evaluations[-1][1] < evaluations[0][1]
