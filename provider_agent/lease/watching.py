"""Watches one program until it has ended: its health, its meter, its checkpoints, and a requested stop."""

from __future__ import annotations

import asyncio
import logging
import time

from provider_agent.context import AgentContext
from provider_agent.errors import ExecutorFailed, JournalFailed
from provider_agent.executors.base import Exit, Handle, log_path, preamble_bytes
from provider_agent.lease.artifact_shipper import ArtifactShipper, snapshot_name
from provider_agent.lease.deadline import LeaseDeadline
from provider_agent.lease.generations import Generations
from provider_agent.lease.path_checkpoints.schedule import PathCheckpoints
from provider_agent.lease.receipts import RECEIPT_SECONDS
from provider_agent.lease.record import LeaseRecord
from provider_agent.lease.runtimes.registry import runtime_of
from provider_agent.lease.snapshot import complete_checkpoints, file_size
from provider_agent.protocol import AttemptState, Reason
from runtimes import contract

TICK_SECONDS = 0.5
CHECKPOINT_SCAN_SECONDS = 1.0
CHECKPOINT_SCAN_SECONDS_MAX = (
    10.0  # a program that writes checkpoints faster than they are taken is watched all the same
)
ENGINE_SILENT_SECONDS_MAX, ENGINE_PAUSE_SECONDS = 60.0, 1.0
UNATTENDED_MARGIN_SECONDS = 30.0  # how much later the executor's own deadline is than the watchdog's

log = logging.getLogger(__name__)


class Watch:
    """Watches the program of one lease."""

    def __init__(
        self, context: AgentContext, record: LeaseRecord, deadline: LeaseDeadline, shipper: ArtifactShipper
    ) -> None:
        self._context = context
        self._record = record
        self._deadline = deadline
        self._shipper = shipper
        self._copies = PathCheckpoints(record, shipper)
        self._generations = Generations(context, record, shipper)
        self._refused: set[str] = set()  # checkpoints that can never be taken
        self._has_lost_peer = False

    async def until_ended(self, handle: Handle) -> Exit:
        """Tick until the program has ended; how it did is journaled."""
        try:
            return await self._until_ended(handle)
        except BaseException:
            self._copies.cancel()
            self._generations.cancel()
            raise

    async def _until_ended(self, handle: Handle) -> Exit:
        record, entry, executor = self._record, self._record.entry, self._context.executor
        started_at = time.monotonic()
        scan_at = receipt_at = 0.0
        kill_at: float | None = None
        if entry.state is AttemptState.RUNNING:
            record.start_metering()
        while (ended := await self._poll(handle)) is None:
            now = time.monotonic()
            await self._extend(handle)
            if entry.state is AttemptState.PREPARING and self._is_healthy(now - started_at):
                record.start_metering()
                record.change(AttemptState.RUNNING)
                receipt_at = now + RECEIPT_SECONDS
            self._copies.tick()
            self._generations.tick(handle)
            self._report_lost_peer()
            if now >= scan_at:
                await self.take_checkpoints()
                scan_at = now + CHECKPOINT_SCAN_SECONDS
            if entry.state is AttemptState.RUNNING and now >= receipt_at:
                record.book.make(record.billable_ms())
                receipt_at = now + RECEIPT_SECONDS
            if record.metered_ms() > entry.assignment.seconds_max * 1000:
                record.request_stop(Reason.BUDGET_EXHAUSTED)  # seconds_max is how long the cap lasts
            if record.stop.is_set and kill_at is None:
                record.stop_metering()
                await executor.stop(handle)
                kill_at = now + entry.assignment.stop_grace_seconds
            elif kill_at is not None and now >= kill_at:
                await executor.kill(handle)
            await (record.stop.pause(TICK_SECONDS) if kill_at is None else asyncio.sleep(TICK_SECONDS))
        if entry.state is AttemptState.PREPARING and ended.code == contract.ExitCode.OK:
            record.change(AttemptState.RUNNING)  # it ended before the first tick
        self._generations.cancel()
        record.stop_metering()
        entry.exit = ended.as_dict()
        record.save()
        return ended

    async def take_checkpoints(self) -> None:
        """Take each new complete checkpoint with the meter's reading, and make a receipt for it.

        The newest first: where there is no end of them, the others wait for the next scan. Where the job file names a
        path, its copies are the checkpoints, and the program's own are none.
        """
        generation = self._record.entry.generation
        if self._copies.path is not None or self._generations.is_between():
            return
        known = self._shipper.known() | self._refused
        until = time.monotonic() + CHECKPOINT_SCAN_SECONDS_MAX
        found = await asyncio.to_thread(complete_checkpoints, self._record.work.resolve())
        self._refused &= {
            snapshot_name(folder, generation) for _, folder in found
        }  # those that are gone need no remembering
        for step, folder in reversed(found):
            if time.monotonic() > until:
                return
            if (name := snapshot_name(folder, generation)) in known:
                continue
            billable_ms = self._record.billable_ms()
            try:
                await self._shipper.take_checkpoint(folder, step=step, billable_ms=billable_ms, generation=generation)
            except (OSError, ValueError, JournalFailed) as error:  # pruned meanwhile, or no checkpoint at all
                if isinstance(error, ValueError):
                    self._refused.add(name)  # it has more than a checkpoint may: not to be looked at each second
                log.warning("A checkpoint was not taken: %s lease_id=%s", error, self._record.entry.lease_id)
                continue
            self._record.book.make(billable_ms)

    async def finish_checkpoints(self, ended: Exit, *, with_last: bool) -> None:
        """Take what was saved last, after the program has ended; of a path, one last copy where it is asked for."""
        await self.take_checkpoints()
        await self._copies.finish(ended, with_last=with_last)

    def _report_lost_peer(self) -> None:
        """Report it at once: the marketplace misses a silent node sooner where its peers do."""
        before, self._has_lost_peer = self._has_lost_peer, self._record.has_lost_peer()
        if self._has_lost_peer and not before:
            self._context.wake.set()

    async def _poll(self, handle: Handle) -> Exit | None:
        """Ask the executor; an engine that is away for a moment (an upgrade) does not end a program."""
        silent_until = time.monotonic() + ENGINE_SILENT_SECONDS_MAX
        while True:
            try:
                return await self._context.executor.poll(handle)
            except ExecutorFailed:
                if time.monotonic() > silent_until:
                    raise
                await asyncio.sleep(ENGINE_PAUSE_SECONDS)

    async def _extend(self, handle: Handle) -> None:
        """Pass a deadline that was moved to the executor."""
        if not self._deadline.take_change():
            return
        try:
            await self._context.executor.extend(handle, self._deadline.seconds_left + UNATTENDED_MARGIN_SECONDS)
        except OSError as error:
            lease_id = self._record.entry.lease_id
            log.error("The supervisor could not be given the longer lease: %s lease_id=%s", error, lease_id)

    def _is_healthy(self, alive_seconds: float) -> bool:
        """Whether the program has given the first healthy signal of its runtime."""
        assignment, folder = self._record.entry.assignment, self._record.folder
        return runtime_of(assignment).is_healthy(
            assignment,
            events=self._record.first_events(),
            has_output=file_size(log_path(folder)) > preamble_bytes(folder),
            alive_seconds=alive_seconds,
        )
