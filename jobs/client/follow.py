"""A job's log or events as one stream: every byte once, across attempts and lost connections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from jobs.client.errors import ServerUnreachable, SoukApiError
from jobs.client.job_states import ENDS
from jobs.client.sdk import Souk
from jobs.wire import JobView, StreamPage

WAIT_SECONDS = 20.0
IDLE_SECONDS = 1.0  # where the server answers at once although nothing is new
RECONNECT_SECONDS_MAX = 1800.0


@dataclass
class Cursor:
    """How far a stream has been read."""

    attempt: int = 1
    offset: int = 0

    def advance(self, page: StreamPage) -> bool:
        """Move past a page; whether there may be more to read now."""
        moved = page.next_offset > self.offset
        self.offset = max(self.offset, page.next_offset)
        if page.is_complete and not moved and page.attempts > self.attempt:
            self.attempt, self.offset = self.attempt + 1, 0
            return True
        return moved


def read_page(
    souk: Souk, job_id: UUID, which: Literal["logs", "events"], cursor: Cursor, *, node_rank: int = 0, wait: float = 0
) -> StreamPage:
    """The page at the cursor, without moving it; an empty one while the attempt has not begun."""
    for is_second_try in (False, True):
        try:
            return souk.stream(
                job_id, which, attempt=cursor.attempt, node_rank=node_rank, offset=cursor.offset, wait_seconds=wait
            )
        except SoukApiError as error:
            job = souk.job(job_id) if error.code == "stream_not_found" else None
            if job is None or (is_second_try and len(job.attempts) >= cursor.attempt):
                raise
            if len(job.attempts) < cursor.attempt:
                return _empty_page(job, cursor, node_rank)
    raise AssertionError("unreachable: the second try returns or raises")


def _empty_page(job: JobView, cursor: Cursor, node_rank: int) -> StreamPage:
    return StreamPage(
        attempt=cursor.attempt,
        node_rank=node_rank,
        offset=cursor.offset,
        next_offset=cursor.offset,
        text="",
        is_complete=False,
        attempts=len(job.attempts),
        job_state=job.state,
    )


def is_over(page: StreamPage, cursor: Cursor) -> bool:
    """Nothing will ever follow: this attempt's stream is complete, it was the last, and the job has ended."""
    if page.job_state not in ENDS or page.attempts > cursor.attempt:
        return False
    return page.attempts == 0 or (page.is_complete and page.next_offset <= cursor.offset)


def follow_stream(
    souk: Souk,
    job_id: UUID,
    which: Literal["logs", "events"] = "logs",
    *,
    cursor: Cursor | None = None,
    node_rank: int = 0,
    follow: bool = True,
    wait_seconds: float = WAIT_SECONDS,
) -> Iterator[tuple[int, str]]:
    """(attempt, text) from the cursor to the last attempt's last byte; `follow=False` stops at what is there."""
    cursor = cursor or Cursor()
    lost_at: float | None = None
    while True:
        wait = wait_seconds if follow else 0
        try:
            page = read_page(souk, job_id, which, cursor, node_rank=node_rank, wait=wait)
        except ServerUnreachable:
            lost_at = lost_at or time.monotonic()
            if not follow or time.monotonic() - lost_at > RECONNECT_SECONDS_MAX:
                raise
            time.sleep(IDLE_SECONDS)
            continue
        lost_at = None
        if page.text:
            yield cursor.attempt, page.text
        if cursor.advance(page):
            continue
        if is_over(page, cursor) or not follow:
            return
        time.sleep(IDLE_SECONDS if page.is_complete or page.attempts == 0 or wait < IDLE_SECONDS else 0)
