"""Logs and events of a lease, appended by offset and read by offset.

    append        bytes at an offset; what the server has already is skipped, a gap is refused with the right offset
    read_stream   text from an offset, waiting a little for more; clean enough for any terminal

What is stored is what the program wrote. An ended lease takes bytes until its last one has come, so that a log is
complete down to the line in which the program died.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.db import connection, transaction

from jobs.errors import BodyTooLarge, LeaseOver, OffsetGap, StreamNotFound
from jobs.leases.fencing import require_fence
from jobs.models import Attempt, Job, Lease, Stream, StreamChunk
from jobs.running.events import follow_events
from jobs.running.plain_text import clean, held_back
from jobs.states import JOB_ENDS, LEASE_LIVE
from jobs.wire import StreamPage
from marketplace.foundation import clock
from provider_agent.protocol import APPEND_BYTES_MAX, AttemptState

STREAM_BYTES_MAX = 64 * 1024 * 1024  # stored of one stream of one lease; what comes after is counted and thrown away
PAGE_BYTES_MAX = 256 * 1024
WAIT_SECONDS_MAX = 10.0
POLL_SECONDS = 0.25
DRAIN_SECONDS_MAX = 30  # the longest wait for the last bytes and the last receipt of a lease that has ended

_COUNTERS = {Stream.LOG: ("log_bytes", "log_bytes_final"), Stream.EVENT: ("event_bytes", "event_bytes_final")}


def append(lease: Lease, stream: Stream, *, fence: int, offset: int, data: bytes) -> int:
    """Store what is new of `data`; returns how many bytes of the stream the server has. A repeat changes nothing.

    Raises StaleFence, OffsetGap when bytes before `offset` are missing, LeaseOver for a lease with complete streams.
    """
    if len(data) > APPEND_BYTES_MAX:
        raise BodyTooLarge(bytes_max=APPEND_BYTES_MAX)
    received, final = _COUNTERS[stream]
    with transaction.atomic():
        if stream == Stream.EVENT:
            # The job's row first, as everywhere. What its events say of the job is there as soon as they count: an end
            # that waits for the last of them asks whether the program had loaded its checkpoint.
            Job.objects.select_for_update(of=("self",), no_key=True).get(attempts=lease.attempt_id)
        # The row's lock lets appends take turns: two at one offset have the effect of one.
        locked = Lease.objects.select_for_update(no_key=True).get(pk=lease.pk)
        require_fence(locked, fence)
        have: int = getattr(locked, received)
        if offset > have:
            raise OffsetGap(offset=have)
        new = data[have - offset :]
        if not new:
            return have
        expected: int | None = getattr(locked, final)
        if locked.state not in LEASE_LIVE and expected is not None and have >= expected:
            raise LeaseOver()
        if locked.replaced_at is not None:  # its rank's stream goes on with what another lease writes
            raise LeaseOver()
        kept = new[: max(0, STREAM_BYTES_MAX - have)]
        if kept:
            StreamChunk.objects.create(lease=locked, stream=stream, offset=have, data=kept)
        Lease.objects.filter(pk=lease.pk).update(**{received: have + len(new)})
        if stream == Stream.EVENT and kept:
            follow_events(lease, have, kept)
    return have + len(new)


def read_stream(
    job: Job,
    stream: Stream,
    *,
    attempt: int | None = None,
    node_rank: int = 0,
    offset: int = 0,
    wait_seconds: float = 0,
) -> StreamPage:
    """A piece of one node's stream from `offset`, of the newest attempt by default; waits up to 10 s for one.

    Raises StreamNotFound for an attempt or a rank that the job never had.
    """
    until = time.monotonic() + min(max(wait_seconds, 0), WAIT_SECONDS_MAX)
    while True:
        page = _read_page(job, stream, attempt, node_rank, offset)
        left = until - time.monotonic()
        if page.text or page.is_complete or left <= 0:
            return page
        if not connection.in_atomic_block:
            connection.close()  # back to the pool: who waits must not keep others from the database
        time.sleep(min(POLL_SECONDS, left))


@dataclass(frozen=True)
class _Place:
    """The leases whose stream is read, one after the other: none yet, one, or more where lost nodes were replaced."""

    number: int
    attempts: int
    leases: list[Lease]


def _read_page(job: Job, stream: Stream, attempt: int | None, node_rank: int, offset: int) -> StreamPage:
    state = Job.objects.values_list("state", flat=True).get(pk=job.pk)
    place = _find_place(job, attempt, node_rank)
    text, next_offset, is_complete = "", offset, not place.leases and state in JOB_ENDS
    before = 0  # bytes of the leases that another one has replaced
    for lease in place.leases:
        received: int = getattr(lease, _COUNTERS[stream][0])
        is_last = lease is place.leases[-1]
        if is_last or offset < before + received:
            text, next_offset, is_complete = _read_lease(lease, stream, offset - before)
            next_offset, is_complete = next_offset + before, is_complete and is_last
            break
        before += received
    return StreamPage(
        attempt=place.number,
        node_rank=node_rank,
        offset=offset,
        next_offset=next_offset,
        text=text,
        is_complete=is_complete,
        attempts=place.attempts,
        job_state=state,
    )


def _find_place(job: Job, attempt: int | None, node_rank: int) -> _Place:
    newest = Attempt.objects.filter(job=job).order_by("-number").values_list("number", flat=True).first() or 0
    number = newest if attempt is None else attempt
    if number == 0 and newest == 0:
        return _Place(0, 0, [])
    leases = Lease.objects.select_related("attempt").filter(attempt__job=job, attempt__number=number)
    found = list(leases.filter(node_rank=node_rank).order_by("reserved_at", "fence"))
    if not found:
        raise StreamNotFound(attempt=number, node_rank=node_rank)
    return _Place(number, newest, found)


def _read_lease(lease: Lease, stream: Stream, offset: int) -> tuple[str, int, bool]:
    """Clean text, the offset to go on from, and whether that is the end for good."""
    received: int = getattr(lease, _COUNTERS[stream][0])
    raw = b"".join(_pieces(lease, stream, offset, PAGE_BYTES_MAX))
    is_all = offset + len(raw) >= min(received, STREAM_BYTES_MAX)
    is_over = _is_drained(lease, stream)
    if not (is_over and is_all):
        raw = raw[: len(raw) - held_back(raw)]
    next_offset = offset + len(raw)
    text = clean(raw)
    if received > STREAM_BYTES_MAX and next_offset >= STREAM_BYTES_MAX and offset < received:
        text += f"\n[souk: only the first {STREAM_BYTES_MAX} bytes of this {stream} are kept]\n"
        next_offset = received
    return text, next_offset, is_over and next_offset >= received


def _pieces(lease: Lease, stream: Stream, offset: int, bytes_max: int) -> Iterator[bytes]:
    """Stored bytes from `offset`, at most `bytes_max`."""
    chunks = StreamChunk.objects.filter(lease=lease, stream=stream)
    # Chunks have no gaps: the one that holds `offset` is the last that starts at or before it.
    first = chunks.filter(offset__lte=offset).order_by("-offset").values_list("offset", flat=True).first()
    if first is None:
        return
    wanted = chunks.filter(offset__gte=first, offset__lt=offset + bytes_max).order_by("offset")
    left = bytes_max
    for start, data in wanted.values_list("offset", "data").iterator(chunk_size=64):
        piece = bytes(data)[max(0, offset - start) :][:left]
        left -= len(piece)
        yield piece


def _is_drained(lease: Lease, stream: Stream) -> bool:
    """Whether nothing more will come: all that the agent announced is here, or nobody is left to send it."""
    if lease.state in LEASE_LIVE:
        return False
    received, final = (getattr(lease, name) for name in _COUNTERS[stream])
    if final is not None and received >= final:
        return True
    if final is None and (lease.attempt.state == AttemptState.LOST or lease.reported_at is None):
        return True
    waited = timedelta(seconds=DRAIN_SECONDS_MAX)
    return lease.ended_at is None or lease.ended_at + waited <= clock.now()
