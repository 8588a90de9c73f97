"""How far a job is, by the events of its program: a view of what is stored."""

from __future__ import annotations

import json
import math
from typing import Any

from jobs.models import Attempt, Job, Lease, Stream, StreamChunk
from jobs.running.preparing import advance_preparing
from runtimes.contract import EVENT_LINE_BYTES_MAX, EventKind, read_preparing

CHUNKS_PER_LINE_MAX = 1000

_PROGRESS_KINDS = frozenset({EventKind.STARTED, EventKind.RESUMED, EventKind.STEP, EventKind.EVALUATED})
_AFTER_PREPARING = frozenset({EventKind.STARTED, EventKind.RESUMED, EventKind.STEP})
_STEP_FIELDS = ("step", "loss", "tokens", "tokens_per_second", "seconds")


def follow_progress(lease: Lease, start: int, data: bytes) -> None:
    """Show the newest step in the job. Call it in the transaction that stores the events, the job's row locked."""
    end = data.rfind(b"\n") + 1
    if not end:
        return
    first = data.find(b"\n") + 1
    lines = [_line_before(lease, start) + data[:first], *data[first:end].splitlines()]
    found = [event for event in map(_parse_event, lines) if event is not None]
    if lease.node_rank:  # every node of a gang reports that it prepares; the first one's word is shown
        found = [event for event in found if event["event"] != EventKind.PREPARING]
    if not found:
        return
    number = Attempt.objects.values_list("number", flat=True).get(pk=lease.attempt_id)
    job = Job.objects.get(attempts=lease.attempt_id)
    progress = advance_progress(job.progress, number, found)
    if progress != job.progress:
        Job.objects.filter(pk=job.pk).update(progress=progress)


def advance_progress(progress: dict[str, Any], attempt: int, events: list[dict[str, Any]]) -> dict[str, Any]:
    """The progress after these events of an attempt; an older attempt's late events change nothing."""
    if attempt < progress.get("attempt", 0):
        return progress
    result = {**progress, "attempt": attempt}
    if attempt > progress.get("attempt", 0):
        # It goes on from its checkpoint, which may lie behind where the last one came, and which it has yet to load.
        result = {name: value for name, value in result.items() if name not in ("step", "resumed_from", "preparing")}
    for event in events:
        step = event.get("step")
        kind = event["event"]
        if kind in _AFTER_PREPARING:
            result.pop("preparing", None)
        if kind == EventKind.PREPARING:
            fields = {name: value for name, value in event.items() if name != "event"}
            result["preparing"] = advance_preparing(result.get("preparing"), fields)
        elif kind == EventKind.STARTED and isinstance(event.get("steps_total"), int):
            result["steps_total"] = event["steps_total"]
        elif kind == EventKind.RESUMED and isinstance(step, int):
            result["resumed_from"] = step
        elif kind == EventKind.EVALUATED and "loss" in event:
            result["eval_loss"] = event["loss"]
        elif kind == EventKind.STEP and isinstance(step, int) and step >= result.get("step", 0):
            result |= {name: event[name] for name in _STEP_FIELDS if name in event}
    return result


def _line_before(lease: Lease, offset: int) -> bytes:
    """The beginning, stored before `offset`, of the line that goes on there; empty for one that is too long."""
    chunks = StreamChunk.objects.filter(lease=lease, stream=Stream.EVENT, offset__lt=offset).order_by("-offset")
    tail = b""
    for data in chunks.values_list("data", flat=True)[:CHUNKS_PER_LINE_MAX]:
        tail = bytes(data) + tail
        if b"\n" in tail:
            return tail[tail.rfind(b"\n") + 1 :]
        if len(tail) > EVENT_LINE_BYTES_MAX:
            return b""
    return tail


def _parse_event(line: bytes) -> dict[str, Any] | None:
    """The event in a line, when it is one that shows in the progress; a customer's program may write anything here."""
    if len(line) > EVENT_LINE_BYTES_MAX:
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict):
        return None
    if (preparing := read_preparing(event)) is not None:
        return {**preparing, "event": EventKind.PREPARING}
    if str(event.get("event")) not in _PROGRESS_KINDS:
        return None
    # Only numbers that PostgreSQL's JSON can hold: no NaN, no infinity, nothing that a program made up.
    numbers = {name: value for name, value in event.items() if _is_storable(value)}
    return {**numbers, "event": event["event"]}


def _is_storable(value: object) -> bool:
    return (isinstance(value, int) and abs(value) < 2**63) or (isinstance(value, float) and math.isfinite(value))
