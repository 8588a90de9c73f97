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
# Of an attempt 64 MiB of events are kept. The first half is written as it comes. The other half has eight parts: in the
# first one a step and an evaluation are written every 5 seconds, and in each part after it half as often. The last part
# is for what comes at the end, and for other events.
BYTES_MAX = 64 << 20
BYTES_AT_ONCE = 32 << 20
PARTS = 8
EVERY_SECONDS = 5.0
VALUE_MAX = 1e30  # as the marketplace takes it
CHUNK_BYTES = 1 << 20
_PREFIX, _MANIFEST, _PARTIAL = "step-", "MANIFEST.json", ".partial"
_LOSSES = ("loss", "train_loss", "train/loss")  # as Lightning's users name a step's
_INSTALL = {
    "SoukCallback": "pip install transformers",
    "SoukLightningCallback": "pip install lightning",
}


def started(*, steps_total: int | None = None) -> None:
    """Say how many steps there will be, for the progress bar."""
    _write("started", **({} if steps_total is None else {"steps_total": _step(steps_total)}))


def resumed(step: int) -> None:
    """Say that the program goes on after `step`: what was reported of later steps is void."""
    fields = {"step": _step(step)}
    flush()
    _write("resumed", **fields)


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
    """Report the figures of a step: numbers up to 1e30, or tensors that hold one. One that is not finite is left out.

    `tokens`: of the training up to here; `seconds`: that the step took; `metrics`: your own, by their names. Call it as
    often as you like: after 32 MiB of events (some 200,000 steps) one in five seconds is written, later fewer, and
    always the last one.
    Raises ValueError for a step, a name or a figure that cannot be.
    """
    figures = (loss, learning_rate, gradient_norm, tokens, tokens_per_second, mfu, seconds)
    known = dict(zip(KNOWN, figures, strict=True))
    _pacing.write("step", {"step": _step(step), **_figures(known), **_own(metrics)})


def evaluated(step: int, *, loss: Any = None, **metrics: Any) -> None:
    """Report an evaluation after `step`; raises ValueError as `report` does, and is written as often.

    Its figures are series of their own: `accuracy` is shown as `evaluation_accuracy`.
    """
    _pacing.write("evaluated", {"step": _step(step), **_figures({"loss": loss}), **_own(metrics)})


def checkpointed(step: int) -> None:
    """Say that the state after `step` is saved; `checkpoint` says it itself."""
    _write("checkpointed", step=_step(step))


def flush() -> None:
    """Write the last step, where it still waits. The end of the interpreter does it too, but not `os._exit`."""
    _pacing.flush()


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
    made.__qualname__ = name  # so that what holds one can be pickled: it is found in this module by its name
    globals()[name] = made
    return made


def _transformers_callback() -> type[Any]:
    from transformers import TrainerCallback

    class SoukCallback(TrainerCallback):
        """Reports what a Hugging Face Trainer logs, evaluates and saves; its `logging_steps` says how often."""

        def __init__(self) -> None:
            self._step, self._tokens, self._clock = 0, 0.0, _Clock()

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """How many steps there will be, and after which one it goes on."""
            if state.is_world_process_zero:
                started(steps_total=state.max_steps)
                if state.global_step:
                    resumed(state.global_step)
            self._step, self._tokens = state.global_step, _seen(state)
            self._clock.read()
            self._clock.mark()  # an evaluation may come before the first step

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """What comes after it may be an evaluation or a save, whose time is no step's."""
            self._clock.mark()

        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """It has evaluated; a save may follow."""
            self._clock.leave_out()
            self._clock.mark()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            """What it logs: a training's step, an evaluation, or its summary at the end, which is no step."""
            if not state.is_world_process_zero or not logs or "train_runtime" in logs:
                return
            names = {"loss": "loss", "grad_norm": "gradient_norm", "learning_rate": "learning_rate"}
            evaluation = {name: value for name, value in logs.items() if name.startswith("eval_")}
            if evaluation:
                evaluated(
                    state.global_step,
                    loss=_as_number(evaluation.pop("eval_loss", None)),
                    **_interesting(_without_prefix(evaluation, "eval_")),
                )
            elif "loss" in logs:
                own = {name: value for name, value in logs.items() if name not in names}
                known = {ours: _as_number(logs.get(theirs)) for theirs, ours in names.items()}
                report(state.global_step, **known, **self._speed(state), **_interesting(own))

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """It has saved."""
            self._clock.leave_out()
            self._clock.mark()
            if state.is_world_process_zero:
                checkpointed(state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """The last step is written."""
            flush()

        def _speed(self, state: Any) -> dict[str, float]:
            took, steps, tokens = self._clock.read(), state.global_step - self._step, _seen(state)
            more = tokens - self._tokens
            self._step, self._tokens = state.global_step, tokens
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
            self._step, self._written, self._clock = 0, -1, _Clock()
            self._reported: dict[str, Any] = {}  # as they were, so that what is of an epoch comes once

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            """How many steps there will be, and after which one it goes on."""
            self._step = self._written = trainer.global_step
            self._clock.read()
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
            took, steps = self._clock.read(), step - self._step
            self._step = self._written = step
            found = self._take_new(trainer)
            # Lightning divides it by the batches of a step; what the module logs itself it leaves as it is.
            loss = _as_number(outputs.get("loss") if isinstance(outputs, dict) else outputs)
            loss = None if loss is None else loss * trainer.accumulate_grad_batches
            for name in _LOSSES:
                logged = _as_number(found.pop(name, None))
                # Only where a step returns none: what is logged may be the mean of the epoch before.
                loss = logged if loss is None else loss
            seconds = took / steps if steps > 0 else None
            rate = trainer.optimizers[0].param_groups[0]["lr"] if trainer.optimizers else None
            report(step, loss=loss, learning_rate=_as_number(rate), seconds=seconds, **_interesting(found))

        def on_train_batch_start(self, trainer: Any, *_: Any, **__: Any) -> None:
            """A save that came before it has ended."""
            self._clock.leave_out()

        def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
            """A save begins, whose time is no step's."""
            self._clock.mark()

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            """An evaluation begins, whose time is no step's."""
            self._clock.leave_out()
            self._clock.mark()

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            """What it logged under names that begin with val; `val_loss` or `val/loss` is the evaluation's loss."""
            self._clock.leave_out()
            if trainer.sanity_checking or not trainer.is_global_zero:
                return
            found = {name: value for name, value in trainer.callback_metrics.items() if _is_validation(name)}
            losses = [found.pop(name) for name in ("val_loss", "val/loss") if name in found]
            if losses or found:
                own = _interesting(_without_prefix(found, "val_", "val/", "valid_", "valid/"))
                evaluated(trainer.global_step, loss=_as_number(losses[0]) if losses else None, **own)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            """The last step is written, and what is of the last epoch."""
            found = {name: value for name, value in self._take_new(trainer).items() if name not in _LOSSES}
            if trainer.is_global_zero and (own := _interesting(found)):
                report(trainer.global_step, **own)
            flush()

        def _take_new(self, trainer: Any) -> dict[str, Any]:
            """What was logged since the last call; Lightning keeps the values of an epoch through the next one."""
            found = {name: value for name, value in trainer.callback_metrics.items() if not _is_validation(name)}
            new = {name: value for name, value in found.items() if not _is_same(value, self._reported.get(name))}
            self._reported.update(new)
            return new

    return SoukLightningCallback


class _Clock:
    """How long steps took, without what came between them."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._marked: float | None = None

    def mark(self) -> None:
        """What comes from here on may be left out."""
        self._marked = time.monotonic()

    def leave_out(self) -> None:
        """Leave out what came since the mark; nothing where there is none."""
        if self._marked is not None:
            self._since += time.monotonic() - self._marked
            self._marked = None

    def read(self) -> float:
        """The seconds since the last call."""
        now = time.monotonic()
        took, self._since = now - self._since, now
        if self._marked is not None:
            self._marked = now  # what came before it is in this reading
        return took


def _is_same(value: Any, before: Any) -> bool:
    """Whether a logged value is the very one of before, and not one that is only equal: each logging makes its own."""
    if value is before or not (hasattr(value, "data_ptr") and hasattr(before, "data_ptr")):
        return value is before
    return bool(value.data_ptr() == before.data_ptr())


def _without_prefix(found: dict[str, Any], *prefixes: str) -> dict[str, Any]:
    """The names without what says that they are of an evaluation, as the event itself says it."""
    short: dict[str, Any] = {}
    for name, value in found.items():
        cut = next((name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)), name)
        is_free = NAME.fullmatch(cut) and cut not in {*found, *short, *KNOWN, "step"}
        short[cut if is_free else name] = value
    return short


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
        number = None if value is None else float(value)
        return None if number is None or VALUE_MAX < abs(number) < math.inf else number
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


# --- what is written, and when


class _Pacing:
    """Writes steps and evaluations as they come, until there are many; then some of each, and the last at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, float] = {}  # when one of a name may be written again
        self._waiting: dict[str, dict[str, Any]] = {}  # the newest of each name that was not written

    def write(self, event: str, fields: dict[str, Any]) -> None:
        """Write an event of this name, or keep it as the newest that waits."""
        with self._lock:
            now = time.monotonic()
            self._waiting.pop(event, None)
            if now < self._next.get(event, now):
                self._waiting[event] = fields
                return
            if event == "evaluated":  # after the step that it is of
                self._write_waiting()
            _write(event, **fields)
            self._next[event] = now + _seconds_between(_written[0])

    def flush(self) -> None:
        """Write what waits."""
        with self._lock:
            self._write_waiting()

    def _write_waiting(self) -> None:
        for event in ("step", "evaluated"):
            if event in self._waiting:
                _write(event, **self._waiting.pop(event))


def _seconds_between(written: int) -> float:
    """How long after a step the next one is written, by the bytes of all events so far."""
    if written < BYTES_AT_ONCE:
        return 0.0
    part = (written - BYTES_AT_ONCE) * PARTS // (BYTES_MAX - BYTES_AT_ONCE)
    return math.inf if part >= PARTS - 1 else EVERY_SECONDS * 2**part


_pacing = _Pacing()
_written = [0]  # bytes of all events of the attempt, whoever of its programs wrote them
_saved = [time.monotonic()]  # when the last checkpoint was complete; at first the start
_has_warned = [False]
atexit.register(flush)


def _write(name: str, /, **fields: Any) -> None:
    """Append one event in one write, so that a reader never sees half of it. A full disk ends no training.

    What would carry the events over what is kept of an attempt is left out.
    """
    path = os.environ.get("SOUK_EVENTS", "")
    if not path or int(_number("RANK") or 0) or int(_number("SOUK_NODE_RANK") or 0):
        return
    event = {"event": name, "at": round(time.time(), 3), **fields}
    line = json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            _written[0] = os.fstat(descriptor).st_size
            if _written[0] + len(line) <= BYTES_MAX:
                _written[0] += os.write(descriptor, line)
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
        if isinstance(value, bool):
            raise ValueError(f"{name}={value!r}: pass a number, such as 1 for True")
        try:
            number = value if isinstance(value, int) else float(value)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise ValueError(f"{name}={value!r}: pass a number, or a tensor that holds one ({error})") from error
        if isinstance(number, float) and not math.isfinite(number):
            continue
        if abs(number) > VALUE_MAX:
            raise ValueError(f"{name}: pass a number of at most {VALUE_MAX:g}, or -{VALUE_MAX:g}")
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
