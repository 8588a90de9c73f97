"""The curve as a run in a file store of MLflow."""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path
from typing import Any

from jobs.client.exports.run import Run

EXPERIMENT = "souk"
BATCH_MAX = 1000  # metrics in a call, MLflow's own limit


def write(run: Run, folder: Path) -> str:
    """Write a folder that `mlflow ui` shows; says how. All points have the time of the export."""
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions take a database by themselves
    tracking: Any = importlib.import_module("mlflow.tracking")  # partly untyped
    entities: Any = importlib.import_module("mlflow.entities")
    client = tracking.MlflowClient(tracking_uri=folder.resolve().as_uri())
    experiment = client.create_experiment(EXPERIMENT)
    made = client.create_run(experiment, run_name=run.name, tags={"souk.job_id": str(run.job_id)}).info.run_id
    now_ms = int(time.time() * 1000)
    metrics = [entities.Metric(name, value, now_ms, step) for name, step, value in run.scalars()]
    for first in range(0, len(metrics), BATCH_MAX):
        client.log_batch(made, metrics=metrics[first : first + BATCH_MAX])
    client.set_terminated(made)
    return f"Show it: mlflow ui --backend-store-uri {folder}"
