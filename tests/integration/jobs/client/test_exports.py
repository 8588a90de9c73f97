"""Other tools read what `souk metrics --export` writes: each file is read back by the tool's own package."""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from jobs.client.exports.formats import Format, export
from jobs.client.exports.run import Run
from jobs.wire import CurvePointView, CurveSeries, JobCurve

JOB = UUID("0192f3c1-0000-7000-8000-000000000000")
STEPS = 1500  # more than MLflow takes in one call
LOSSES = {step: 4.0 / step for step in range(1, STEPS + 1)}
HEADER_BYTES, BLOCK_BYTES, WHOLE, LAST = 7, 32 * 1024, 1, 4
REWARDS = {10: 0.25, 20: 0.5}


def series(name: str, figures: dict[int, float]) -> CurveSeries:
    points = [
        CurvePointView(
            attempt=1, first_step=step, last_step=step, count=1, mean=value, lowest=value, highest=value, newest=value
        )
        for step, value in figures.items()
    ]
    return CurveSeries(name=name, points=points)


RUN = Run(
    JOB,
    "tiny-llama",
    JobCurve(stride=1, series=[series("loss", LOSSES), series("reward/../../mean", REWARDS)], has_more_names=False),
)


def test_tensorboard_reads_the_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    reading: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert f"tensorboard --logdir {tmp_path}" in export(RUN, Format.TENSORBOARD, tmp_path)
    found = reading.EventAccumulator(str(tmp_path), size_guidance={"scalars": 0})
    found.Reload()
    assert found.Tags()["scalars"] == ["loss", "reward/mean"]
    assert {each.step: each.value for each in found.Scalars("loss")} == pytest.approx(LOSSES, rel=1e-6)
    assert {each.step: each.value for each in found.Scalars("reward/mean")} == REWARDS


def test_mlflow_reads_its_store(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    assert f"mlflow ui --backend-store-uri {tmp_path}" in export(RUN, Format.MLFLOW, tmp_path)
    tracking: Any = importlib.import_module("mlflow.tracking")
    client = tracking.MlflowClient(tracking_uri=tmp_path.as_uri())
    experiment = client.get_experiment_by_name("souk")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status, run.data.tags["souk.job_id"]) == ("tiny-llama", "FINISHED", str(JOB))
    assert {each.step: each.value for each in client.get_metric_history(run.info.run_id, "loss")} == LOSSES
    assert {each.step: each.value for each in client.get_metric_history(run.info.run_id, "reward/mean")} == REWARDS


def records_of(path: Path) -> Iterator[bytes]:
    """The records of a log as LevelDB writes it, behind a header of 7 bytes: its parts are never across a block."""
    data, at, record = path.read_bytes(), HEADER_BYTES, b""
    assert data.startswith(b":W&B")
    while at + HEADER_BYTES <= len(data):
        if BLOCK_BYTES - at % BLOCK_BYTES < HEADER_BYTES:  # the rest of a block is empty
            at += BLOCK_BYTES - at % BLOCK_BYTES
            continue
        _, size, part = struct.unpack_from("<IHB", data, at)
        record += data[at + HEADER_BYTES : at + HEADER_BYTES + size]
        at += HEADER_BYTES + size
        if part in (WHOLE, LAST):
            yield record
            record = b""


def test_wandb_has_the_curve_in_its_offline_run(tmp_path: Path) -> None:
    """By the package's own messages: its reader of the file that holds them is a program that sends them at once."""
    pytest.importorskip("wandb")
    assert "wandb sync" in export(RUN, Format.WANDB, tmp_path)
    (path,) = tmp_path.glob(f"wandb/offline-run-*/run-{JOB}.wandb")
    messages: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    found = [messages.Record.FromString(each) for each in records_of(path)]
    (run,) = (each.run for each in found if each.HasField("run"))
    assert (run.run_id, run.display_name, run.project) == (str(JOB), "tiny-llama", "souk")
    rows = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in each.history.item}
        for each in found
        if each.HasField("history")
    ]
    assert {row["_step"]: row["loss"] for row in rows} == LOSSES
    assert {row["_step"]: row["reward/mean"] for row in rows if "reward/mean" in row} == REWARDS
    assert any(each.HasField("exit") and each.exit.exit_code == 0 for each in found)
