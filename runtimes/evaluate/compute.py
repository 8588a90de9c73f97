"""Computes what is not answered yet, on all devices at once, and saves: nothing is computed twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from runtimes.contract import EventKind, EventWriter
from runtimes.evaluate.answers import Answers
from runtimes.evaluate.model import Model
from runtimes.evaluate.request import Request
from runtimes.train.container import Container
from runtimes.train.errors import Stopped

EVENT_SECONDS = 1.0  # between two `step` events
SAVE_SECONDS_DEFAULT = 60  # between checkpoints, where the job leaves it to the runtime


@dataclass
class Progress:
    """What this attempt did, over all models, and what is left to save."""

    container: Container
    events: EventWriter
    stop: threading.Event
    devices: int
    computed: int = 0
    reused: int = 0
    saved: int = 0  # answers in the newest checkpoint
    saved_at: float = field(default_factory=time.monotonic)
    reported_at: float = 0.0
    started_at: float = field(default_factory=time.monotonic)

    def report(self, *, is_last: bool = False) -> None:
        """Write a `step` event, at most one in EVENT_SECONDS."""
        now = time.monotonic()
        if not is_last and now < self.reported_at + EVENT_SECONDS:
            return
        self.reported_at = now
        self.events.write(
            EventKind.STEP,
            step=self.computed + self.reused,
            seconds=round(now - self.started_at, 3),
            metrics={"computed": self.computed, "reused": self.reused},
        )

    def save_if_due(self, answers: Answers) -> None:
        """Save a checkpoint where the job's policy wants one now."""
        steps, seconds = self.container.checkpoint_every_steps, self.container.checkpoint_every_seconds
        if not steps and not seconds:
            seconds = SAVE_SECONDS_DEFAULT
        is_due = bool(steps) and len(answers) >= self.saved + steps
        if is_due or (seconds and time.monotonic() >= self.saved_at + seconds):
            self.save(answers)

    def save(self, answers: Answers) -> None:
        """Save a checkpoint, unless the newest one has all answers."""
        began = time.monotonic()
        if len(answers) > self.saved:
            keep = self.container.checkpoint_keep
            folder = answers.save(self.container.checkpoint_dir, keep=keep, world_size=self.devices)
            took = round(time.monotonic() - began, 3)
            path = str(folder.relative_to(self.container.work_dir))
            self.events.write(
                EventKind.CHECKPOINTED, step=len(answers), path=path, seconds_blocked=took, seconds_total=took
            )
        self.saved, self.saved_at = len(answers), time.monotonic()


def compute_missing(
    requests: list[Request], model: Model, answers: Answers, progress: Progress, *, batch_size: int
) -> None:
    """Answer every request that has no answer yet, `batch_size` at a time over all devices.

    Raises Stopped once SIGTERM came, with everything saved; and what `Model.answer` raises.
    """
    missing: list[tuple[str, Request]] = []
    for request in requests:
        digest = request.digest(model.digest)
        if digest in answers:
            progress.reused += 1
        else:
            missing.append((digest, request))
    progress.report(is_last=not missing)
    with ThreadPoolExecutor(progress.devices) as pool:
        for batch in _batches(missing, batch_size):
            found = list(pool.map(model.answer, [request for _, request in batch]))
            for (digest, _), answer in zip(batch, found, strict=True):
                answers.add(digest, answer)
            answers.flush()
            progress.computed += len(batch)
            if progress.stop.is_set():
                progress.report(is_last=True)
                progress.save(answers)
                raise Stopped("SIGTERM: every answer so far is in the last checkpoint")
            progress.report()
            progress.save_if_due(answers)
    progress.report(is_last=True)


def _batches(missing: list[tuple[str, Request]], size: int) -> Iterator[list[tuple[str, Request]]]:
    for first in range(0, len(missing), size):
        yield missing[first : first + size]
