"""When the path of a lease is copied: every so often while its program runs, and once more after it has ended.

A copy is taken where files changed since the last one, and once nothing has been written for SETTLE_SECONDS: a program
that saves several files is between two of them for less. One that never pauses so long is copied after
SETTLE_SECONDS_MAX all the same, if nothing was written during the copy; that is tried TRIES_MAX times. While a copy
waits to be sent none is taken, so that a slow line fills no disk.

After a program was ended in the middle of a write its files are torn. So the last copy is taken where it left in order,
or where nothing had been written for SETTLE_SECONDS when it was last seen alive.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from provider_agent.errors import JournalFailed
from provider_agent.executors.base import SNAPSHOTS_NAME, Exit, append_to_log
from provider_agent.lease.artifact_shipper import ArtifactShipper
from provider_agent.lease.path_checkpoints.copying import COPY_SECONDS_MAX, CopyTorn, copy_path
from provider_agent.lease.path_checkpoints.listing import CopyRefused, Listing, list_path
from provider_agent.lease.path_checkpoints.state import CopyState
from provider_agent.lease.record import LeaseRecord
from runtimes.contract import ExitCode

SETTLE_SECONDS: Final = 2.0
SETTLE_SECONDS_MAX: Final = 60.0
TRIES_MAX: Final = 5  # of copies during which something was written; then the next time
LAST_COPY_SECONDS_MAX: Final = 60.0
COPYING_NAME: Final = "copying"  # beside the snapshots, on their disk
IN_ORDER: Final = frozenset({int(ExitCode.OK), int(ExitCode.STOPPED)})
NS: Final = 10**9

log = logging.getLogger(__name__)


class PathCheckpoints:
    """The copies of one lease whose job file names a `checkpoint.path`; for any other lease it does nothing."""

    def __init__(self, record: LeaseRecord, shipper: ArtifactShipper) -> None:
        policy = record.entry.assignment.checkpoint
        self.path = policy.path if record.entry.assignment.program.command else None
        self._every_seconds = policy.every_seconds
        self._record, self._shipper = record, shipper
        self._state: CopyState | None = None
        self._task: asyncio.Task[None] | None = None
        self._due_at: float | None = None
        self._stopped = asyncio.Event()  # read by the copying thread, too
        self._alive_at: float | None = None  # by the clock that files have: when the program was last seen alive

    def tick(self) -> None:
        """The program is alive; start a copy where one is due. Returns at once."""
        if self.path is None:
            return
        self._alive_at, now = time.time(), time.monotonic()
        if self._task is not None:
            if not self._task.done():
                return
            self._task, self._due_at = None, now + self._every_seconds
        if self._due_at is None:
            self._due_at = now + self._every_seconds
        if now >= self._due_at and not self._record.stop.is_set and not self._shipper.waiting():
            self._task = asyncio.create_task(self._guarded(self._take_settled))

    def cancel(self) -> None:
        """The agent ends, and the program goes on: a copy that is being made ends as torn."""
        self._stopped.set()
        if self._task is not None:
            self._task.cancel()

    async def finish(self, ended: Exit, *, with_last: bool) -> None:
        """The program has ended: take the last copy, if it is to be taken, and write the log's lines."""
        if self.path is None:
            return
        self._stopped.set()
        if self._task is not None:
            await asyncio.wait([self._task])
            self._task = None
        self._stopped.clear()
        if with_last and not ended.vanished:
            await self._guarded(lambda: self._take_last(ended))
        await self._guarded(self._write_notes)

    async def _guarded(self, take: Callable[[], Awaitable[None]]) -> None:
        """No failure to copy ends an attempt."""
        try:
            await take()
        except CopyRefused as error:
            self._note(f"no copy of {self.path} was taken: {error}")
        except OSError as error:
            log.warning("A path was not copied: %s lease_id=%s", error, self._record.entry.lease_id)
            self._note(f"no copy of {self.path} was taken: {error.strerror or 'the disk failed'}")
        except JournalFailed as error:
            log.warning("A path was not copied: %s lease_id=%s", error, self._record.entry.lease_id)

    async def _take_settled(self) -> None:
        """Wait until the path is at rest, then copy it."""
        until = time.monotonic() + SETTLE_SECONDS_MAX
        seen, tries = "", 0
        while not self._record.stop.is_set and not self._stopped.is_set():
            listing = await self._list()
            digest = listing.digest()
            if not listing.marks or digest == self._load().digest:
                return
            if digest == seen or time.monotonic() > until:
                try:
                    return await self._copy(listing, seconds_max=COPY_SECONDS_MAX)
                except CopyTorn as error:
                    tries += 1
                    if tries >= TRIES_MAX:
                        why = f"{error} at each of {tries} tries; let the program write logs elsewhere"
                        raise CopyRefused(f"{why}, or name a folder with checkpoints alone") from error
            seen = digest
            await self._pause(SETTLE_SECONDS)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)

    async def _take_last(self, ended: Exit) -> None:
        listing = await self._list()
        if not listing.marks or listing.digest() == self._load().digest:
            return
        if ended.code not in IN_ORDER:
            rest_from = (self._alive_at or 0.0) - SETTLE_SECONDS
            if listing.changed_ns > rest_from * NS:
                raise CopyRefused("the program was ended while it may have been writing, so the copy before counts")
        try:
            await self._copy(listing, seconds_max=LAST_COPY_SECONDS_MAX)
        except CopyTorn as error:
            raise CopyRefused(f"{error} after the program had ended") from error

    async def _list(self) -> Listing:
        listing = await asyncio.to_thread(list_path, self._record.work.resolve(), str(self.path))
        if listing.left_out:
            self._note(f"left out of the copies, as their names cannot be kept: {', '.join(listing.left_out)}")
        return listing

    async def _copy(self, listing: Listing, *, seconds_max: float) -> None:
        """Copy, journal, and make a receipt: what the meter reads when the copy begins is what it is worth."""
        state, record = self._load(), self._record
        billable_ms = record.billable_ms()
        step = max(state.resumed_step, self._shipper.newest_step()) + 1
        into = record.folder / SNAPSHOTS_NAME / COPYING_NAME
        await asyncio.to_thread(
            copy_path,
            *(record.work.resolve(), str(self.path), listing, into),
            step=step,
            is_stopped=self._stopped.is_set,
            seconds_max=seconds_max,
        )
        self._shipper.add_copy(into, step=step, billable_ms=billable_ms)
        state.digest, state.taken = listing.digest(), state.taken + 1
        state.save(record.folder)
        record.book.make(record.billable_ms())
        log.info("A path was copied. lease_id=%s step=%s bytes=%s", record.entry.lease_id, step, listing.size)

    async def _write_notes(self) -> None:
        """Of every lease how many copies there are, and what is not in them."""
        state = self._load()
        taken = f"{state.taken} copies of {self.path} were taken" if state.taken else f"{self.path} was never copied"
        append_to_log(self._record.folder, [f"checkpoint.path: {line}" for line in [*state.notes, taken]])

    def _note(self, line: str) -> None:
        if self._load().note(line):
            log.warning("Of a path's copies: %s lease_id=%s", line, self._record.entry.lease_id)
            with suppress(OSError):  # of a full disk; it is in memory, too
                self._load().save(self._record.folder)

    def _load(self) -> CopyState:
        if self._state is None:
            self._state = CopyState.load(self._record.folder)
        return self._state
