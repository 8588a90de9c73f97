"""Watches a job to its end: state changes, recovery, progress and log as they come. Leaving it leaves the job alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol
from uuid import UUID

from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from jobs.client.errors import ServerUnreachable
from jobs.client.follow import RECONNECT_SECONDS_MAX, Cursor, is_over, read_page
from jobs.client.job_states import ENDS, STOPS
from jobs.client.output import console, money, print_json, state
from jobs.client.sdk import Souk
from jobs.client.transport import without_controls
from jobs.client.views.job import PREPARING_STATES, progress_text
from jobs.spec import kind_named
from jobs.wire import JobView

TICK_SECONDS = 1.0
END_SECONDS_MAX = 180.0  # after a job's end, for the last bytes of its log; the server gives up before that
PLAIN_PROGRESS_SECONDS = 5.0  # between progress lines where there is no terminal
DRAIN_PAGES_MAX = 10_000
# What the built-in runtime reports, as people read it; steps are in the progress line.
EVENT_TEXTS = {
    "started": "training {parameters:,} parameters for {steps_total:,} steps on {world_size} ranks ({device}, {dtype})",
    "resumed": "resumed at step {step} from a checkpoint of {from_world_size} ranks",
    "evaluated": "step {step}: evaluation loss {loss:.4f}",
    "stopped_early": "step {step}: ends early, no evaluation was better than {best_loss:.4f}, of step {best_step}",
    "checkpointed": "step {step}: checkpoint saved, training stood still for {seconds_blocked:.2f} s",
    "sampled": "step {step}: {prompt}{text}",
    "exported": "the model is written",
    "failed": "failed: {message}",
}
EVALUATION_STARTED = "asking {model} {requests:,} requests on {world_size} ranks ({device}, {dtype})"
LOSSES = ("loss", "best_loss")  # null where they are not finite: JSON has no NaN


class Watcher(Protocol):
    """Receives what happens, in order."""

    def on_job(self, job: JobView) -> None:
        """The job as it is now."""

    def on_event(self, attempt: int, event: dict[str, Any]) -> None:
        """One event line of the program."""

    def on_log(self, attempt: int, text: str) -> None:
        """A piece of the log."""


def watch(souk: Souk, job_id: UUID, watcher: Watcher) -> JobView:
    """The job once nothing more happens by itself; the watcher got every log byte and event once."""
    logs, events = Cursor(), Cursor()
    lines = _EventLines()
    lost_at = ended_at = None
    while True:
        try:
            job = souk.job(job_id)
            watcher.on_job(job)
            logs_over = _pass_on(souk, job_id, "logs", logs, watcher.on_log)
            events_over = _pass_on(souk, job_id, "events", events, lines.to(watcher.on_event))
        except ServerUnreachable:
            lost_at = lost_at or time.monotonic()
            if time.monotonic() - lost_at > RECONNECT_SECONDS_MAX:
                raise
            time.sleep(TICK_SECONDS)
            continue
        lost_at = None
        if job.state in STOPS:
            # Logs may end a moment before or after the state does; both are waited for.
            ended_at = ended_at or time.monotonic()
            is_waited = time.monotonic() - ended_at > END_SECONDS_MAX
            if job.state not in ENDS or (logs_over and events_over) or is_waited:
                return job
        time.sleep(TICK_SECONDS)


def _pass_on(souk: Souk, job_id: UUID, which: Any, cursor: Cursor, emit: Callable[[int, str], None]) -> bool:
    """Pass on all there is now; whether nothing will ever follow."""
    for _ in range(DRAIN_PAGES_MAX):
        attempt = cursor.attempt
        page = read_page(souk, job_id, which, cursor)
        if page.text:
            emit(attempt, page.text)
        if not cursor.advance(page):
            return is_over(page, cursor)
    return False


class _EventLines:
    """Whole JSON lines out of pieces of text."""

    def __init__(self) -> None:
        self._attempt = 0
        self._rest = ""

    def to(self, emit: Callable[[int, dict[str, Any]], None]) -> Callable[[int, str], None]:
        """A function that takes pieces of text and emits whole events."""

        def take(attempt: int, text: str) -> None:
            for event in self._split(attempt, text):
                emit(attempt, event)

        return take

    def _split(self, attempt: int, text: str) -> Iterator[dict[str, Any]]:
        if attempt != self._attempt:
            self._attempt, self._rest = attempt, ""
        *whole, self._rest = (self._rest + text).split("\n")
        for line in whole:
            try:
                event = without_controls(json.loads(line))
            except (ValueError, RecursionError):
                continue  # a customer's program writes what it likes
            if isinstance(event, dict):
                yield event


def event_text(event: dict[str, Any]) -> str | None:
    """An event for people; None for those that the progress bar shows anyway."""
    template = EVENT_TEXTS.get(str(event.get("event")))
    if template is None:
        return None
    if event["event"] == "started" and "requests" in event:
        template = EVALUATION_STARTED
    try:
        return template.format_map(event | {key: _NotFinite() for key in LOSSES if key in event and event[key] is None})
    except (KeyError, ValueError, TypeError):  # an own program may use the same names for something else
        shown = {key: value for key, value in event.items() if key not in ("event", "at")}
        return f"{event['event']}: " + ", ".join(f"{key} {_brief(value)}" for key, value in shown.items())


class _NotFinite:
    """Stands for a loss that is not finite, in any format."""

    def __format__(self, spec: str) -> str:
        return "not finite"


class TerminalWatcher:
    """A progress bar with the log above it; plain lines where stdout is no terminal."""

    def __init__(self, *, with_log: bool = True) -> None:
        self._console = console()
        self._with_log = with_log
        self._has_event_lines = False
        self._state, self._attempts, self._waiting = "", 0, ""
        self._shown_at, self._note = 0.0, ""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._bar = Progress(*columns, console=self._console) if self._console.is_terminal else None
        self._task = self._bar.add_task("", total=None, note="") if self._bar else None

    def shown(self) -> AbstractContextManager[Any]:
        """While this is entered, the bar is on the screen."""
        return self._bar or nullcontext()

    def on_job(self, job: JobView) -> None:
        """Show a change of state, a recovery, and the progress."""
        # The built-in runtime logs for people what it also reports as events: once is enough.
        self._has_event_lines = kind_named(job.kind).shows_events(job.spec)
        if job.state != self._state:
            self._print(f"[dim]job[/] {state(job.state)}" + (f" [dim]{escape(job.message)}[/]" if job.message else ""))
            self._state = job.state
        if len(job.attempts) > self._attempts:
            self._show_attempt(job)
            self._attempts = len(job.attempts)
        if job.waiting_for != self._waiting:
            self._waiting = job.waiting_for
            if job.waiting_for:
                self._print(f"[yellow]waiting[/]: {escape(job.waiting_for)}")
        self._show_progress(job)

    def _show_attempt(self, job: JobView) -> None:
        newest = job.attempts[-1]
        where = escape(
            ", ".join(f"{lease.node_name} ({lease.devices} x {lease.device_model})" for lease in newest.leases)
        )
        if newest.number == 1:
            self._print(f"[dim]attempt 1 on[/] {where}")
            return
        before = next((attempt for attempt in job.attempts if attempt.number == newest.number - 1), None)
        step = newest.resumed_from_step
        origin = f"the checkpoint of step {step}" if step is not None else "the beginning"
        cause = f" after {escape(before.reason)}" if before and before.reason else ""
        self._print(f"[magenta]recovered[/]{cause}: attempt {newest.number} on {where} goes on from {origin}")

    def on_event(self, attempt: int, event: dict[str, Any]) -> None:
        """Show the events that the bar does not show."""
        text = event_text(event)
        if text:
            self._print(f"[cyan]{escape(text)}[/]")

    def on_log(self, attempt: int, text: str) -> None:
        """The log, above the bar."""
        if self._with_log and not self._has_event_lines:
            self._console.print(text.rstrip("\n"), markup=False, highlight=False)

    def _show_progress(self, job: JobView) -> None:
        note = f"{progress_text(job)}  {money(job.cost_so_far_usd_micros)}"
        if self._bar is not None and self._task is not None:
            step, total = _bar_counts(job)
            self._bar.update(self._task, description=state(job.state), note=note, completed=step, total=total)
        elif job.progress and note != self._note and time.monotonic() - self._shown_at >= PLAIN_PROGRESS_SECONDS:
            self._shown_at, self._note = time.monotonic(), note
            self._print(note)

    def _print(self, markup: str) -> None:
        self._console.print(markup, highlight=False)


class JsonWatcher:
    """One JSON object a line on stdout for whatever changes."""

    def __init__(self) -> None:
        self._job: dict[str, Any] = {}

    def shown(self) -> AbstractContextManager[Any]:
        """Nothing to show but the lines."""
        return nullcontext()

    def on_job(self, job: JobView) -> None:
        """The job, when anything about it changed."""
        body = job.model_dump(mode="json")
        if body != self._job:
            self._job = body
            print_json({"type": "job", "job": body})

    def on_event(self, attempt: int, event: dict[str, Any]) -> None:
        """One event of the program."""
        print_json({"type": "event", "attempt": attempt, "event": event})

    def on_log(self, attempt: int, text: str) -> None:
        """A piece of the log."""
        print_json({"type": "log", "attempt": attempt, "text": text})


def _bar_counts(job: JobView) -> tuple[int, int | None]:
    """How much of how much is done: steps, or before the first one what is prepared."""
    preparing = job.progress.get("preparing")
    if job.state in PREPARING_STATES and isinstance(preparing, dict):
        return preparing.get("done") or 0, preparing.get("total")
    return job.progress.get("step") or 0, job.progress.get("steps_total")


def _brief(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= 200 else text[:197] + "..."
