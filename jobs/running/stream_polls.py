"""Polls of logs and events that wait for something new, many at once: one look at the database finds who has news.

A poll remembers what there was before its page was read, so that nothing that comes between is missed. Which page there
is now, and whether the caller may still read it, is asked anew by whoever holds the poll.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import Max

from jobs.models import Attempt, Job, Lease, Stream
from jobs.running.streams import WAIT_SECONDS_MAX

_COUNTERS = {Stream.LOG: ("log_bytes", "log_bytes_final"), Stream.EVENT: ("event_bytes", "event_bytes_final")}
_STATES = ("state", "attempt__state", "reported_at")


@dataclass(frozen=True)
class StreamPoll:
    """One poll, and what there was when it began."""

    job_id: UUID
    stream: Stream
    attempt: int | None  # None: the newest
    node_rank: int
    seconds: float
    mark: tuple[Any, ...]


@dataclass
class _Streams:
    """What decides whether one job's streams have something new."""

    job_state: str = ""
    newest: int = 0
    leases: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)  # by attempt and rank

    def mark(self, stream: Stream, attempt: int | None, node_rank: int) -> tuple[Any, ...]:
        lease = self.leases.get((attempt or self.newest, node_rank), {})
        return (self.job_state, self.newest, *(lease.get(name) for name in (*_COUNTERS[stream], *_STATES)))


def begin_poll(
    job: Job, stream: Stream, *, attempt: int | None, node_rank: int, wait_seconds: float
) -> StreamPoll | None:
    """Before the page is read: the poll that waits if there is nothing in it; None for a caller who does not wait."""
    seconds = min(wait_seconds, WAIT_SECONDS_MAX)
    if seconds <= 0:
        return None
    mark = _read([job.pk])[job.pk].mark(stream, attempt, node_rank)
    return StreamPoll(job.pk, stream, attempt, node_rank, seconds, mark)


def with_news(polls: Sequence[StreamPoll]) -> set[StreamPoll]:
    """Those for which something has changed since they began; three queries for all of them."""
    streams = _read({poll.job_id for poll in polls})
    return {poll for poll in polls if streams[poll.job_id].mark(poll.stream, poll.attempt, poll.node_rank) != poll.mark}


def _read(job_ids: Collection[UUID]) -> dict[UUID, _Streams]:
    found: defaultdict[UUID, _Streams] = defaultdict(_Streams)
    for job_id, state in Job.objects.filter(pk__in=job_ids).values_list("pk", "state"):
        found[job_id].job_state = state
    attempts = Attempt.objects.filter(job_id__in=job_ids).order_by()
    for job_id, newest in attempts.values_list("job_id").annotate(Max("number")):
        found[job_id].newest = newest
    columns = {name for names in _COUNTERS.values() for name in names} | set(_STATES)
    leases = Lease.objects.filter(attempt__job_id__in=job_ids).order_by("reserved_at")  # the newest of a rank counts
    for row in leases.values("attempt__job_id", "attempt__number", "node_rank", *sorted(columns)):
        found[row["attempt__job_id"]].leases[row["attempt__number"], row["node_rank"]] = row
    return found
