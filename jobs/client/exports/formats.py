"""The formats of an export. Another one is a module with `write` and a row in the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from jobs.client.errors import TransferFailed, UsageMistake
from jobs.client.exports import csv_table, mlflow, tensorboard, wandb
from jobs.client.exports.run import Run


class Format(StrEnum):
    """What a curve is exported as."""

    CSV = "csv"
    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    MLFLOW = "mlflow"


@dataclass(frozen=True)
class Writer:
    """Writes a run into an empty folder and says what to do with it. `module`: what it imports, of `package`."""

    write: Callable[[Run, Path], str]
    module: str = ""
    package: str = ""


WRITERS = {
    Format.CSV: Writer(csv_table.write),
    Format.TENSORBOARD: Writer(tensorboard.write, "tensorboardX", "tensorboardX"),
    Format.WANDB: Writer(wandb.write, "wandb", "wandb"),
    Format.MLFLOW: Writer(mlflow.write, "mlflow", "mlflow"),
}


def check_writable(chosen: Format, folder: Path) -> None:
    """Raise UsageMistake where the format's package is not installed, or the folder has something in it."""
    writer = WRITERS[chosen]
    if writer.module and find_spec(writer.module) is None:
        raise UsageMistake(
            f"--export {chosen} needs the package {writer.package}, which is not installed beside `souk`: "
            f"pip install {writer.package}"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageMistake(f"--into {folder}: is there already and not an empty folder; name another one.")


def export(run: Run, chosen: Format, folder: Path) -> str:
    """Write the run into a new or empty folder; what to do with it, in a sentence. Raises a SoukClientError."""
    check_writable(chosen, folder)
    if not run.curve.series:
        raise TransferFailed(f"There is nothing to export: {run.name} has reported no figures yet.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return WRITERS[chosen].write(run, folder)
    except OSError as error:
        raise TransferFailed(f"The curve could not be written into {folder}: {error.strerror or error}.") from error
