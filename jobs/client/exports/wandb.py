"""The curve as an offline run of Weights & Biases: nothing is sent until the customer syncs it, with their own key."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from jobs.client.exports.run import Run

PROJECT = "souk"
# What a run would record of this computer, which did not train.
QUIET = {
    "mode": "offline",
    "console": "off",
    "silent": True,
    "disable_git": True,
    "save_code": False,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
}


def write(run: Run, folder: Path) -> str:
    """Write an offline run with the job's id, so that a second export of the job is the same run; says how to sync."""
    wandb: Any = importlib.import_module("wandb")  # partly untyped
    settings = wandb.Settings(**QUIET)
    with wandb.init(project=PROJECT, id=str(run.job_id), name=run.name, dir=str(folder), settings=settings) as record:
        for step, figures in run.by_step():
            record.log(figures, step=step)
    wandb.teardown()  # its process has written all when it has ended
    return f"Send it: wandb sync {folder / 'wandb'}/offline-run-*"
