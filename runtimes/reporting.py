"""Progress, metrics and checkpoints of a program of your own. One file: it needs nothing but Python's own library.

    import souk_report as souk                 # this file beside your script, as `files` of the job file

    souk.started(steps_total=1000)
    for step in range(1, 1001):
        ...
        souk.report(step, loss=loss, learning_rate=_as_number(rate), accuracy=accuracy)
    souk.evaluated(step, loss=validation_loss)

    Trainer(..., callbacks=[souk.SoukCallback()])             # Hugging Face transformers
    Trainer(..., callbacks=[souk.SoukLightningCallback()])    # Lightning

`souk metrics JOB` draws what is reported, and `souk show JOB` has the newest step. Nothing is billed by it. Where Souk
does not run the program, all of this does nothing, so a script needs no `if`. Of several ranks rank zero alone reports:
calls of the others do nothing. `python -m runtimes.reporting > souk_report.py` writes the file; where `runtimes` can be
imported, as in the provider's own images, `from runtimes import reporting` is the same.

A program that saves in its own way may leave that to `checkpoint.path` of the job file. With `checkpoint` it says
itself which files are a whole one:

    if (folder := souk.resume_folder()) is not None:
        load(folder / "state.pt")
    if souk.is_checkpoint_due(step):
        with souk.checkpoint(step) as folder:
            save(folder / "state.pt")
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import json
import math
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Names of figures, as the marketplace keeps them; it keeps 20 a job, beside those that `report` names.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_./-]{0,39}")
KNOWN = ("loss", "learning_rate", "gradient_norm", "tokens", "tokens_per_second", "mfu", "seconds")  # to `report`
STEP_MAX = 10**12 - 1
# 64 MiB of events are kept of an attempt: so many steps are written as they come, then one in so many seconds.
STEPS_AT_ONCE = 10_000
STEP_EVERY_SECONDS = 5.0
CHUNK_BYTES = 1 << 20
_PREFIX, _MANIFEST, _PARTIAL = "step-", "MANIFEST.json", ".partial"
_INSTALL = {
    "SoukCallback": "pip install transformers",
    "SoukLightningCallback": "pip install lightning",
}


def started(*, steps_total: int | None = None, **facts: Any) -> None:
    """Say how many steps there will be, for the progress bar; `facts` are shown with it."""
    total = {} if steps_total is None else {"steps_total": _step(steps_total)}
    _write("started", **total, **facts)


def resumed(step: int) -> None:
    """Say that the program goes on after `step`: what was reported of later steps is void."""
    _flush()
    _write("resumed", step=_step(step))


def report(
    step: int,
    *,
    loss: Any = None,
    learning_rate: Any = None,
    gradient_norm: Any = None,
    tokens: Any = None,
    tokens_per_second: Any = None,
    mfu: Any = None,
    seconds: Any = None,
    **metrics: Any,
) -> None:
    """Report the figures of a step: numbers, or tensors that hold one. One that is not finite is left out.

    `tokens`: of the training up to here; `seconds`: that the step took; `metrics`: your own, by their names. Call it as
    often as you like: after 10,000 steps one in five seconds is written, and always the last one.
    Raises ValueError for a step, a name or a figure that cannot be.
    """
    figures = (loss, learning_rate, gradient_norm, tokens, tokens_per_second, mfu, seconds)
    known = dict(zip(KNOWN, figures, strict=True))
    _pacing.write({"step": _step(step), **_figures(known), **_own(metrics)})


def evaluated(step: int, *, loss: Any = None, **metrics: Any) -> None:
    """Report an evaluation after `step`; raises ValueError as `report` does. Each one is written."""
    _flush()
    _write("evaluated", step=_step(step), **_figures({"loss": loss}), **_own(metrics))


def checkpointed(step: int) -> None:
    """Say that the state after `step` is saved; `checkpoint` says it itself."""
    _write("checkpointed", step=_step(step))


def resume_folder() -> Path | None:
    """Where the checkpoint lies that this attempt goes on from; None where it begins anew."""
    found = os.environ.get("SOUK_RESUME_FROM", "")
    return Path(found) if found else None


def is_checkpoint_due(step: int) -> bool:
    """Whether the job file's `checkpoint.every` wants the state after `step` to be saved. Ask rank zero alone."""
    steps, seconds = (_number(f"SOUK_CHECKPOINT_EVERY_{unit}") for unit in ("STEPS", "SECONDS"))
    if steps:
        return step > 0 and step % int(steps) == 0
    return seconds is not None and seconds > 0 and time.monotonic() - _saved[0] >= seconds


@contextmanager
def checkpoint(step: int) -> Iterator[Path]:
    """A folder to save the state after `step` in; it counts as a whole once this is left without an error.

    For one node, and one of its ranks. Older checkpoints than the job file's `checkpoint.keep` are deleted. Outside of
    Souk the folder is made below `checkpoint/`.
    """
    root = Path(os.environ.get("SOUK_CHECKPOINT_DIR") or "checkpoint")
    folder = root / f"{_PREFIX}{_step(step):08d}"
    _delete(folder)
    folder.mkdir(parents=True)
    began = time.monotonic()
    yield folder
    _write_manifest(folder, step)
    _saved[0] = time.monotonic()
    seconds = round(_saved[0] - began, 3)
    _write("checkpointed", step=step, seconds_blocked=seconds, seconds_total=seconds)
    keep = max(1, int(_number("SOUK_CHECKPOINT_KEEP") or 2))
    older = [path for path in root.glob(f"{_PREFIX}*") if path != folder and (path / _MANIFEST).is_file()]
    # By number, as text step-100000000 comes before step-99999999; and what was just written stays, whatever its step.
    older = sorted((path for path in older if _saved_step(path) is not None), key=lambda path: _saved_step(path) or 0)
    for old in older[: max(0, len(older) + 1 - keep)]:
        _delete(old)


# --- the callbacks of two frameworks, made where they are asked for


def __getattr__(name: str) -> Any:
    """The callback classes, whose base classes come from packages that this module does not need."""
    makers = {"SoukCallback": _transformers_callback, "SoukLightningCallback": _lightning_callback}
    if name not in makers:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        made = makers[name]()
    except ImportError as error:
        raise ImportError(f"{name} needs a package that is not here: {_INSTALL[name]} ({error})") from error
    globals()[name] = made
    return made


def _transformers_callback() -> type[Any]:
    from transformers import TrainerCallback

    class SoukCallback(TrainerCallback):
        """Reports what a Hugging Face Trainer logs, evaluates and saves; its `logging_steps` says how often."""

        def __init__(self) -> None:
            self._step, self._tokens, self._at = 0, 0.0, 0.0

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """How many steps there will be, and after which one it goes on."""
            if state.is_world_process_zero:
                started(steps_total=state.max_steps)
                if state.global_step:
                    resumed(state.global_step)
            self._step, self._tokens, self._at = state.global_step, _seen(state), time.monotonic()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            """What it logs: a training's step, an evaluation, or its summary at the end, which is no step."""
            if not state.is_world_process_zero or not logs or "train_runtime" in logs:
                return
            names = {"loss": "loss", "grad_norm": "gradient_norm", "learning_rate": "learning_rate"}
            evaluation = {name: value for name, value in logs.items() if name.startswith("eval_")}
            if evaluation:
                evaluated(
                    state.global_step, loss=_as_number(evaluation.pop("eval_loss", None)), **_interesting(evaluation)
                )
            elif "loss" in logs:
                own = {name: value for name, value in logs.items() if name not in names}
                known = {ours: _as_number(logs.get(theirs)) for theirs, ours in names.items()}
                report(state.global_step, **known, **self._speed(state), **_interesting(own))

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """It has saved."""
            if state.is_world_process_zero:
                checkpointed(state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """The last step is written."""
            _flush()

        def _speed(self, state: Any) -> dict[str, float]:
            now, steps, tokens = time.monotonic(), state.global_step - self._step, _seen(state)
            took, more = now - self._at, tokens - self._tokens
            self._step, self._tokens, self._at = state.global_step, tokens, now
            if steps <= 0 or took <= 0:
                return {}
            return {"seconds": took / steps} | (
                {"tokens": tokens, "tokens_per_second": more / took} if more > 0 else {}
            )

    return SoukCallback


def _lightning_callback() -> type[Any]:
    try:
        base = importlib.import_module("lightning.pytorch").Callback
    except ImportError:
        base = importlib.import_module("pytorch_lightning").Callback

    class SoukLightningCallback(base):  # type: ignore[misc, valid-type]
        """Reports what a LightningModule logs; the Trainer's `log_every_n_steps` says how often."""

        def __init__(self) -> None:
            self._step, self._at, self._written = 0, 0.0, -1

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            """How many steps there will be, and after which one it goes on."""
            self._step, self._at = trainer.global_step, time.monotonic()
            self._written = trainer.global_step
            if trainer.is_global_zero:
                total = trainer.estimated_stepping_batches
                started(steps_total=int(total) if 0 <= total <= STEP_MAX else None)
                if trainer.global_step:
                    resumed(trainer.global_step)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any, **__: Any) -> None:
            """A step, once: a batch that only accumulates gradients is none."""
            step, every = trainer.global_step, max(1, trainer.log_every_n_steps)
            if not trainer.is_global_zero or step == self._written or step % every:
                return
            now, steps = time.monotonic(), step - self._step
            took, self._step, self._at, self._written = now - self._at, step, now, step
            found = {name: value for name, value in trainer.callback_metrics.items() if not _is_validation(name)}
            # Lightning divides it by the batches of a step; what the module logs itself it leaves as it is.
            loss = _as_number(outputs.get("loss") if isinstance(outputs, dict) else outputs)
            loss = None if loss is None else loss * trainer.accumulate_grad_batches
            for name in ("loss", "train_loss", "train/loss"):
                loss = _as_number(found.pop(name, loss))
            seconds = took / steps if steps > 0 else None
            rate = trainer.optimizers[0].param_groups[0]["lr"] if trainer.optimizers else None
            report(step, loss=loss, learning_rate=_as_number(rate), seconds=seconds, **_interesting(found))

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            """What it logged under names that begin with val; `val_loss` or `val/loss` is the evaluation's loss."""
            if trainer.sanity_checking or not trainer.is_global_zero:
                return
            found = {name: value for name, value in trainer.callback_metrics.items() if _is_validation(name)}
            losses = [found.pop(name) for name in ("val_loss", "val/loss") if name in found]
            if losses or found:
                evaluated(trainer.global_step, loss=_as_number(losses[0]) if losses else None, **_interesting(found))

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            """The last step is written."""
            _flush()

    return SoukLightningCallback


def _is_validation(name: str) -> bool:
    return name.startswith(("val_", "val/", "valid"))


def _seen(state: Any) -> float:
    return float(getattr(state, "num_input_tokens_seen", 0) or 0)


def _interesting(found: dict[str, Any]) -> dict[str, float]:
    """What of a framework's log is a figure of its own: neither how long it took, nor what others report anyway."""
    boring = ("runtime", "_per_second", "epoch", "total_flos", "num_input_tokens_seen")
    taken = {*KNOWN, "step"}
    names = [name for name in found if NAME.fullmatch(name) and not name.endswith(boring) and name not in taken]
    numbers = {name: _as_number(found[name]) for name in names}
    return {name: number for name, number in numbers.items() if number is not None}


def _as_number(value: Any) -> float | None:
    """What a framework logs, as a number; None for what is none: it ends no training."""
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


# --- what is written, and when


class _Pacing:
    """Writes steps as they come, until there are many; then one in some seconds, and the last one at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left, self._at = float(STEPS_AT_ONCE), time.monotonic()
        self._waiting: dict[str, Any] = {}

    def write(self, fields: dict[str, Any]) -> None:
        """Write a step, or keep it as the newest that waits; what comes twice of a step becomes one."""
        with self._lock:
            now = time.monotonic()
            self._left = min(STEPS_AT_ONCE, self._left + (now - self._at) / STEP_EVERY_SECONDS)
            self._at = now
            if self._left < 1:
                self._waiting = fields
                return
            self._left -= 1
            self._waiting = {}
            _write("step", **fields)

    def flush(self) -> None:
        """Write the step that waits, if one does."""
        with self._lock:
            if self._waiting:
                _write("step", **self._waiting)
            self._waiting = {}


_pacing = _Pacing()
_saved = [time.monotonic()]  # when the last checkpoint was complete; at first the start
_has_warned = [False]


@atexit.register
def _flush() -> None:
    _pacing.flush()


def _write(kind: str, **fields: Any) -> None:
    """Append one event in one write, so that a reader never sees half of it. A full disk ends no training."""
    path = os.environ.get("SOUK_EVENTS", "")
    if not path or int(_number("RANK") or 0) or int(_number("SOUK_NODE_RANK") or 0):
        return
    line = json.dumps({"event": kind, "at": round(time.time(), 3), **fields}, separators=(",", ":"), allow_nan=False)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode() + b"\n")
        finally:
            os.close(descriptor)
    except OSError as error:
        if not _has_warned[0]:
            sys.stderr.write(f"souk: nothing is reported, as {path} cannot be written: {error}\n")
        _has_warned[0] = True


def _step(step: Any) -> int:
    is_whole = isinstance(step, int) and not isinstance(step, bool)
    if not is_whole or not 0 <= step <= STEP_MAX:
        raise ValueError(f"step {step!r}: pass a whole number from 0 to {STEP_MAX}")
    return int(step)


def _own(metrics: dict[str, Any]) -> dict[str, Any]:
    for name in metrics:
        if not NAME.fullmatch(name):
            raise ValueError(f"metric {name!r}: a name is a letter and at most 39 letters, digits and _ . / -")
    found = _figures(metrics)
    return {"metrics": found} if found else {}


def _figures(given: dict[str, Any]) -> dict[str, float]:
    """Those that are given and finite, as numbers."""
    found: dict[str, float] = {}
    for name, value in given.items():
        if value is None:
            continue
        try:
            number = value if isinstance(value, int) else float(value)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise ValueError(f"{name}={value!r}: pass a number, or a tensor that holds one ({error})") from error
        if isinstance(number, int) and abs(number) > 10**30:
            raise ValueError(f"{name}: pass a number of at most 30 digits")
        if math.isfinite(number):
            found[name] = number
    return found


def _number(variable: str) -> float | None:
    try:
        found = float(os.environ.get(variable, ""))
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _saved_step(folder: Path) -> int | None:
    """The step in the name of a checkpoint's folder; None for another folder."""
    digits = folder.name.removeprefix(_PREFIX)
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= len(str(STEP_MAX)) else None


def _delete(folder: Path) -> None:
    """Its list first, so that no checkpoint is taken for whole while it goes."""
    (folder / _MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _write_manifest(folder: Path, step: int) -> None:
    """List the files with their SHA-256, all of them on the disk, then make the list appear in one moment."""
    files = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        digest = hashlib.sha256()
        with path.open("rb") as source:
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
            os.fsync(source.fileno())
        entry = {"path": path.relative_to(folder).as_posix(), "size": path.stat().st_size, "sha256": digest.hexdigest()}
        files.append(entry)
    partial = folder / (_MANIFEST + _PARTIAL)
    with partial.open("w") as out:
        json.dump({"contract": 1, "step": step, "files": files}, out)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(folder / _MANIFEST)


if __name__ == "__main__":
    sys.stdout.write(Path(__file__).read_text())
