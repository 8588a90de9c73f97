"""Computes what is not answered yet, on all devices at once, and saves: nothing is computed twice."""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from runtimes.contract import EventKind, EventWriter
from runtimes.evaluate.answers import Answers
from runtimes.evaluate.endpoint import EndpointModel
from runtimes.evaluate.model import Model
from runtimes.evaluate.request import Answer, Request
from runtimes.train.container import Container
from runtimes.train.errors import Stopped, TrainError

EVENT_SECONDS = 1.0  # between two `step` events
LOOK_SECONDS = 0.5  # how late SIGTERM is seen, at most
STOP_SECONDS_MAX = 5.0  # that passes which run when SIGTERM comes may still take, of a grace of 30
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
    reported: int = -1  # the step of the newest event
    started_at: float = field(default_factory=time.monotonic)

    def report(self, *, is_last: bool = False) -> None:
        """Write a `step` event, at most one in EVENT_SECONDS, and none without progress."""
        now = time.monotonic()
        step = self.computed + self.reused
        if not is_last and (now < self.reported_at + EVENT_SECONDS or step == self.reported):
            return
        self.reported_at, self.reported = now, step
        self.events.write(
            EventKind.STEP,
            step=step,
            seconds=round(now - self.started_at, 3),
            metrics={"computed": self.computed, "reused": self.reused},
        )

    def leave_if_stopped(self) -> None:
        """Raise Stopped if SIGTERM came."""
        if self.stop.is_set():
            raise Stopped("SIGTERM: every answer so far is in the last checkpoint")

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
    requests: list[Request], model: Model | EndpointModel, answers: Answers, progress: Progress, *, batch_size: int
) -> None:
    """Answer every request that has no answer yet, `batch_size` at a time, or as many as the model takes at once.

    Each answer is kept as it comes, and at the end all are saved. Raises Stopped once SIGTERM came, and what
    `Model.answer` raises, with everything saved in both cases.
    """
    missing: list[tuple[str, Request]] = []
    for request in requests:
        digest = request.digest(model.digest)
        if digest in answers:
            progress.reused += 1
        else:
            missing.append((digest, request))
    progress.report(is_last=not missing)
    running: dict[Future[Answer], str] = {}
    pool = ThreadPoolExecutor(model.concurrency)
    waiting = iter(missing)
    try:
        while not progress.stop.is_set():
            for digest, request in islice(waiting, max(batch_size, model.concurrency) - len(running)):
                running[pool.submit(model.answer, request)] = digest
            if not running:
                break
            _keep_done(running, answers, progress, seconds=LOOK_SECONDS)
            progress.save_if_due(answers)
        _keep_rest(running, answers, progress)
    except TrainError:
        progress.stop.set()  # nothing that is still asked will be used: threads that wait for an endpoint leave
        _keep_rest(running, answers, progress)
        progress.save(answers)
        raise
    except BaseException:
        progress.stop.set()
        raise
    finally:
        pool.shutdown(wait=not progress.stop.is_set(), cancel_futures=True)
    progress.report(is_last=True)
    progress.save(answers)
    progress.leave_if_stopped()


def _keep_rest(running: dict[Future[Answer], str], answers: Answers, progress: Progress) -> None:
    """Keep what is answered soon of what runs when the computation ends: passes are left one by one."""
    running = {future: digest for future, digest in running.items() if not future.cancel()}
    until = time.monotonic() + STOP_SECONDS_MAX
    while running and (left := until - time.monotonic()) > 0:
        with suppress(TrainError):  # the first error is the one that is reported
            _keep_done(running, answers, progress, seconds=left)


def _keep_done(running: dict[Future[Answer], str], answers: Answers, progress: Progress, *, seconds: float) -> None:
    """Keep what is answered within `seconds`, and take it out of `running`; raises what `Model.answer` raises."""
    done, _ = wait(running, timeout=seconds, return_when=FIRST_COMPLETED)
    for future in done:
        digest = running.pop(future)
        try:
            answers.add(digest, future.result())
        except Stopped:
            continue
        answers.flush()
        progress.computed += 1
    progress.report()  # also of what came within a second of the last event, while a long request runs
