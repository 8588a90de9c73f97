"""The events of a job's program, as their bytes come in: whole lines, read once, for its progress and its curve."""

from __future__ import annotations

import json
from typing import Any

from jobs.models import Attempt, Job, Lease, Stream, StreamChunk
from jobs.running import generations
from jobs.running.curves import follow_curve
from jobs.running.progress import advance_progress, read_progress
from runtimes.contract import EVENT_LINE_BYTES_MAX, EventKind

CHUNKS_PER_LINE_MAX = 1000


def follow_events(lease: Lease, start: int, data: bytes) -> None:
    """Show what the bytes stored at `start` report, in the job's progress and its curve.

    Call it in the transaction that stores them, the job's row locked.
    """
    end = data.rfind(b"\n") + 1
    if not end:
        return
    first = data.find(b"\n") + 1
    lines = [_line_before(lease, start) + data[:first], *data[first:end].splitlines()]
    events = [event for event in map(_parse, lines) if event is not None]
    found = [event for event in map(read_progress, events) if event is not None]
    if lease.node_rank:  # what every node of a gang reports is shown by the first one's word
        found = [event for event in found if event["event"] not in (EventKind.PREPARING, EventKind.RESUMED)]
    if not found:
        return
    attempt = Attempt.objects.select_related("resume_artifact").get(pk=lease.attempt_id)
    job = Job.objects.get(attempts=lease.attempt_id)
    progress = advance_progress(job.progress, attempt.number, found)
    if progress != job.progress:
        Job.objects.filter(pk=job.pk).update(progress=progress)
    if not lease.node_rank:  # the gang's rank zero alone reports steps
        follow_curve(job.pk, attempt.number, events)
        if any(event["event"] == EventKind.RESUMED for event in found):
            generations.pay_again(attempt)


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


def _parse(line: bytes) -> dict[str, Any] | None:
    """The event in a line; None for what is none. A customer's program may write anything here."""
    if len(line) > EVENT_LINE_BYTES_MAX:
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None
