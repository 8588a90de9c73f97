"""The curve as TensorBoard's event files, by tensorboardX, which is small and needs no TensorFlow."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

from jobs.client.exports.run import Run


def write(run: Run, folder: Path) -> str:
    """Write a folder that `tensorboard --logdir` shows; says how. All points have the time of the export."""
    tensorboard_x: Any = importlib.import_module("tensorboardX")  # untyped
    with tensorboard_x.SummaryWriter(logdir=str(folder), write_to_disk=True) as writer:
        now = time.time()
        for name, step, value in run.scalars():
            writer.add_scalar(name, value, global_step=step, walltime=now)
    return f"Show it: tensorboard --logdir {folder}"
