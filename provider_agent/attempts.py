"""The story of one lease on this node: prepare, start or adopt, watch, wrap up, end.

    assigned -> preparing -> running -> stopping -> succeeded | failed | cancelled | lost

Every step is journaled before it is taken, so that a new agent goes on where the old one was cut off.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any, TypeVar

from provider_agent import protocol
from provider_agent.artifact_shipper import ArtifactShipper
from provider_agent.endings import Ending, has_started, last_failure, name_ending, name_error, name_refusal
from provider_agent.errors import AgentError, ExecutorFailed, JournalFailed
from provider_agent.executors.base import (
    LOG_BYTES_MAX,
    WORK_NAME,
    Exit,
    Handle,
    log_path,
    preamble_bytes,
    write_preamble,
)
from provider_agent.executors.scratch import is_full
from provider_agent.journal import LeaseEntry
from provider_agent.log_shipper import ship_stream
from provider_agent.meter import Meter
from provider_agent.porter import Porter
from provider_agent.preparation import prepare
from provider_agent.protocol import MESSAGE_CHARACTERS_MAX, REASONS, AttemptState, LeaseReport, Reason
from provider_agent.receipts import EVENT_BYTES_MAX, RECEIPT_SECONDS, ReceiptBook, ship_receipts
from provider_agent.snapshot import file_size, read_bytes
from provider_agent.workfolder import CHECKPOINT_NAME, EVENTS_NAME, drop_secrets
from runtimes import contract

TICK_SECONDS = 0.5
CHECKPOINT_SCAN_SECONDS = 1.0
HEALTHY_AFTER_SECONDS = 1.0  # an own command that lives this long, or has printed something, is running
EVENT_TAIL_BYTES = 256 * 1024
CHECKPOINT_DRAIN_SECONDS_MAX = 120.0
ENGINE_SILENT_SECONDS_MAX = 60.0
ADOPTED_SECONDS_MIN, ADOPTED_SECONDS_MAX = 30.0, 120.0  # a new agent's time to hear of a lease that goes on
UNATTENDED_MARGIN_SECONDS = 30.0  # the supervisor's own deadline comes after the watchdog's
DISK_FULL_BYTES = 64 * 1024 * 1024
LEASE_DISK_FULL_BYTES = 1024 * 1024
REASONS_WITHOUT_CONTACT = frozenset({Reason.LEASE_EXPIRED, Reason.NODE_SILENT})

log = logging.getLogger(__name__)
T = TypeVar("T")


class StopAskedError(Exception):
    """The lease was stopped before its program started."""


class Attempt:
    """One lease's part of an attempt, and the tasks that keep it going."""

    def __init__(self, porter: Porter, entry: LeaseEntry, *, server_time: datetime | None = None) -> None:
        self._porter = porter
        self.entry = entry
        self._folder = porter.folder.lease(entry.lease_id)
        self._work = self._folder / WORK_NAME
        self._events = self._work / EVENTS_NAME
        self._meter = Meter(entry.billable_ms)
        self._book = ReceiptBook(porter, entry, self._events)
        self._shipper = ArtifactShipper(porter, entry)
        self._stop_asked = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._lease_is_new = True
        self.lease_deadline = 0.0
        self.extend_lease(entry.lease_until, server_time=server_time)
        if entry.stop_reason is not None:
            self._stop_asked.set()

    # --- what the loops of the agent ask of it

    def launch(self) -> None:
        """Go on from wherever the journal says this lease is."""
        entry, porter = self.entry, self._porter
        log_file = log_path(self._folder)
        self._tasks = [
            asyncio.create_task(self._run()),
            asyncio.create_task(ship_stream(porter, entry, "logs", log_file, bytes_max=LOG_BYTES_MAX)),
            asyncio.create_task(ship_stream(porter, entry, "events", self._events, bytes_max=EVENT_BYTES_MAX)),
            asyncio.create_task(ship_receipts(porter, entry, self._book)),
            asyncio.create_task(self._shipper.loop()),
        ]

    def extend_lease(self, until: datetime, *, server_time: datetime | None = None) -> None:
        """The server said at `server_time` until when this lease lasts; measured by the monotonic clock from now on.

        Of an adopted lease nobody said anything yet: our own clock may be wrong, so it is believed within bounds.
        """
        self.entry.lease_until = until
        if server_time is not None:
            seconds = (until - server_time).total_seconds()
        else:
            seconds = (until - self._porter.client.server_now()).total_seconds()
            seconds = min(max(seconds, ADOPTED_SECONDS_MIN), ADOPTED_SECONDS_MAX)
        self.lease_deadline = time.monotonic() + seconds
        self._lease_is_new = True

    def request_stop(self, reason: Reason) -> None:
        """Stop for `reason`; the first reason stays."""
        if self.entry.has_ended or self.entry.stop_reason is not None:
            return
        self.entry.stop_reason = reason
        self._save()
        self._stop_asked.set()
        log.info("Stop asked. lease_id=%s reason=%s", self.entry.lease_id, reason)

    def report(self) -> LeaseReport:
        """This lease as it is now."""
        entry = self.entry
        return LeaseReport(
            lease_id=entry.lease_id,
            fence=entry.assignment.fence,
            attempt_id=entry.assignment.attempt_id,
            state=entry.state,
            reason=entry.reason,
            message=entry.message[:MESSAGE_CHARACTERS_MAX],
            exit_code=entry.exit_code,
            billable_ms=self._billable_ms(),
            log_bytes=min(file_size(log_path(self._folder)), LOG_BYTES_MAX),
            event_bytes=min(file_size(self._events), EVENT_BYTES_MAX),
            receipt_seq=self._book.seq,
        )

    async def wait_until_ended(self) -> None:
        """Return once the lease has ended; its last bytes may still be on their way."""
        await asyncio.wait(self._tasks[:1])

    async def close(self) -> None:
        """Stop watching; the program goes on and the next agent adopts it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def forget(self) -> None:
        """Remove every trace of an ended lease but its devices' fences."""
        await self.close()
        if self.entry.handle is not None:
            await self._porter.executor.cleanup(self.entry.handle)
        await self._porter.executor.remove_room(self._folder)
        await asyncio.to_thread(shutil.rmtree, self._folder, True)
        self._porter.journal.forget_lease(self.entry.lease_id)
        log.info("Lease forgotten. lease_id=%s", self.entry.lease_id)

    # --- the story

    async def _run(self) -> None:
        if self.entry.has_ended:
            return
        try:
            ending = await self._live()
        except StopAskedError:
            ending = Ending(self.entry.stop_reason or Reason.INTERNAL, "stopped before the program started")
        except Exception as error:
            ending = await self._name_error(error)
        self._end(ending)

    async def _live(self) -> Ending:
        async with self._turn():
            if self.entry.exit is not None:
                ended = Exit.from_dict(self.entry.exit)
            else:
                handle = await self._find() or await self._start()
                ended = await self._watch(handle)
        return await self._wrap_up(ended)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until earlier programs have left our devices; in one order, so that nobody waits in a circle."""
        async with AsyncExitStack() as stack:
            for uuid in sorted(self.entry.assignment.device_uuids):
                turn = stack.enter_async_context(self._porter.turns[uuid])
                await (self._unless_stopped(turn) if self.entry.state is AttemptState.ASSIGNED else turn)
            yield

    async def _find(self) -> Handle | None:
        """The program that an earlier agent started for this lease, if it did."""
        if self.entry.state is AttemptState.ASSIGNED:
            return None
        handle = await self._porter.executor.adopt(self.entry.lease_id, self._folder, self.entry.handle)
        if handle is not None:
            log.info("Program adopted. lease_id=%s", self.entry.lease_id)
            self.entry.handle = handle
            self._save()
        return handle

    async def _start(self) -> Handle:
        """Prepare and start. The state is journaled before, the handle right after."""
        self._change(AttemptState.PREPARING)
        self._porter.journal.save_lease(self.entry)  # nothing is started that would not be known after a restart
        spec = await self._unless_stopped(prepare(self._porter, self.entry.assignment))
        self._announce(self._porter.executor.describe(spec))
        await self._unless_stopped(self._porter.executor.ready(spec, contract.EventWriter(str(self._events)).write))
        handle = await self._porter.executor.start(spec)
        self.entry.handle = handle
        self._save()
        drop_secrets(self._folder)
        log.info("Program started. lease_id=%s executor=%s", self.entry.lease_id, self._porter.executor.name)
        return handle

    def _announce(self, facts: list[str]) -> None:
        """Which limits and permissions apply, for the provider's log and, before anything else, the customer's."""
        for fact in facts:
            log.info("Applies: %s lease_id=%s", fact, self.entry.lease_id)
        write_preamble(self._folder, facts)

    async def _watch(self, handle: Handle) -> Exit:
        """Until the program has ended: see it become healthy, meter it, take its checkpoints, stop it when asked."""
        started_at = time.monotonic()
        scan_at = receipt_at = 0.0
        kill_at: float | None = None
        if self.entry.state is AttemptState.RUNNING:
            self._meter.start()
        while (ended := await self._poll(handle)) is None:
            now = time.monotonic()
            await self._extend(handle)
            if self.entry.state is AttemptState.PREPARING and self._is_healthy(now - started_at):
                self._meter.start()
                self._change(AttemptState.RUNNING)
                receipt_at = now + RECEIPT_SECONDS
            if now >= scan_at:
                await self._take_checkpoints()
                scan_at = now + CHECKPOINT_SCAN_SECONDS
            if self.entry.state is AttemptState.RUNNING and now >= receipt_at:
                self._book.make(self._billable_ms())
                receipt_at = now + RECEIPT_SECONDS
            if self._meter.read_ms() > self.entry.assignment.seconds_max * 1000:
                self.request_stop(Reason.BUDGET_EXHAUSTED)  # seconds_max is how long the cap lasts
            if self._stop_asked.is_set() and kill_at is None:
                self._stop_metering()
                await self._porter.executor.stop(handle)
                kill_at = now + self.entry.assignment.stop_grace_seconds
            elif kill_at is not None and now >= kill_at:
                await self._porter.executor.kill(handle)
            await self._sleep(TICK_SECONDS, until_stop=kill_at is None)
        if self.entry.state is AttemptState.PREPARING and ended.code == contract.ExitCode.OK:
            self._change(AttemptState.RUNNING)  # it was done before we looked a first time
        self._stop_metering()
        self.entry.exit = ended.as_dict()
        self._save()
        return ended

    async def _wrap_up(self, ended: Exit) -> Ending:
        """Name the ending, then ship what must be there before it is reported: checkpoints, and the output."""
        ending = name_ending(
            ended,
            stop_reason=self.entry.stop_reason,
            is_builtin=not self.entry.assignment.program.command,
            failure=last_failure(self._event_tail()),
        )
        if ending.reason is Reason.EXIT_NONZERO and self._is_disk_full():
            ending = Ending(Reason.DISK_FULL, "the node's disk is full", ending.exit_code)
        elif ending.reason is Reason.EXIT_NONZERO and is_full(self._folder, LEASE_DISK_FULL_BYTES):
            ending = Ending(ending.reason, f"{ending.message}; the job's disk on this node is full", ending.exit_code)
        await self._take_checkpoints()
        if ending.reason in REASONS_WITHOUT_CONTACT:
            return ending
        if ending.reason is Reason.COMPLETED:
            try:
                await self._shipper.ship_output(self._billable_ms())
            except (AgentError, OSError, ValueError, TimeoutError) as error:
                return name_refusal(error, ending.exit_code)
            return ending
        try:
            await asyncio.wait_for(self._shipper.ship_waiting(), CHECKPOINT_DRAIN_SECONDS_MAX)
        except (AgentError, OSError, ValueError, TimeoutError) as error:
            log.warning("The last checkpoint was not shipped: %s lease_id=%s", error, self.entry.lease_id)
        return ending

    def _end(self, ending: Ending) -> None:
        """The last word on this lease, journaled before it is reported."""
        self._stop_metering()
        entry = self.entry
        entry.reason, entry.message, entry.exit_code = ending.reason, ending.message, ending.exit_code
        drop_secrets(self._folder)
        self._change(REASONS[ending.reason].state)
        self._porter.failures.note(ending.reason)
        log.info("Lease ended. lease_id=%s state=%s reason=%s", entry.lease_id, entry.state, entry.reason)

    # --- steps

    async def _poll(self, handle: Handle) -> Exit | None:
        """Ask the executor; an engine that is away for a moment (an upgrade) does not end a program."""
        silent_until = time.monotonic() + ENGINE_SILENT_SECONDS_MAX
        while True:
            try:
                return await self._porter.executor.poll(handle)
            except ExecutorFailed:
                if time.monotonic() > silent_until:
                    raise
                await asyncio.sleep(1.0)

    async def _extend(self, handle: Handle) -> None:
        if self._lease_is_new:
            self._lease_is_new = False
            seconds = self.lease_deadline - time.monotonic() + UNATTENDED_MARGIN_SECONDS
            try:
                await self._porter.executor.extend(handle, seconds)
            except OSError as error:
                log.error("The supervisor was not told of the longer lease: %s lease_id=%s", error, self.entry.lease_id)

    def _is_healthy(self, alive_seconds: float) -> bool:
        """The first healthy signal: the runtime's `started` event; of other programs output, or a second of life."""
        if not self.entry.assignment.program.command:
            return has_started(read_bytes(self._events, 0, EVENT_TAIL_BYTES))
        return alive_seconds >= HEALTHY_AFTER_SECONDS or file_size(log_path(self._folder)) > preamble_bytes(
            self._folder
        )

    async def _take_checkpoints(self) -> None:
        """Take each new complete checkpoint with the meter's reading, and make a receipt for it."""
        root = self._work / CHECKPOINT_NAME
        known = self._shipper.known()
        for folder in contract.complete_checkpoints(root):
            if f"{CHECKPOINT_NAME}-{folder.name}" in known:
                continue
            billable_ms = self._billable_ms()
            try:
                await self._shipper.take(
                    f"{CHECKPOINT_NAME}/{folder.name}",
                    kind="checkpoint",
                    step=contract.checkpoint_step(folder),
                    billable_ms=billable_ms,
                )
            except (OSError, ValueError, JournalFailed) as error:  # pruned meanwhile, or no checkpoint at all
                log.warning("A checkpoint was not taken: %s lease_id=%s", error, self.entry.lease_id)
                continue
            self._book.make(billable_ms)

    async def _name_error(self, error: Exception) -> Ending:
        """An ending for what went wrong on our side; the program, if there is one, is ended first."""
        log.error("Lease failed: %s lease_id=%s", error, self.entry.lease_id, exc_info=error)
        if self.entry.handle is not None and self.entry.exit is None:
            try:
                await self._porter.executor.kill(self.entry.handle)
            except AgentError as second:
                log.error("The program could not be killed: %s lease_id=%s", second, self.entry.lease_id)
        return name_error(error, has_started=self.entry.handle is not None)

    def _stop_metering(self) -> None:
        """Only RUNNING is metered; the last receipt says how much that was."""
        self._meter.stop()
        self._book.make(self._billable_ms())
        if self.entry.state is AttemptState.RUNNING:
            self._change(AttemptState.STOPPING)

    def _billable_ms(self) -> int:
        """What was metered, up to what the lease's cap pays for."""
        assignment = self.entry.assignment
        payable_ms = protocol.payable_ms(assignment.rate_usd_micros_per_hour, assignment.cap_usd_micros)
        return min(self._meter.read_ms(), payable_ms)

    def _change(self, state: AttemptState) -> None:
        """Journal a new state and tell the server at once."""
        self.entry.state = state
        self._save()
        self._porter.wake.set()

    def _save(self) -> None:
        """Journal this lease as it is. On a full disk what runs goes on, and it is journaled with the next change."""
        self.entry.billable_ms = self._meter.read_ms()
        try:
            self._porter.journal.save_lease(self.entry)
        except JournalFailed as error:
            log.error("%s lease_id=%s state=%s", error, self.entry.lease_id, self.entry.state)

    def _event_tail(self) -> bytes:
        size = file_size(self._events)
        return read_bytes(self._events, max(size - EVENT_TAIL_BYTES, 0), EVENT_TAIL_BYTES)

    def _is_disk_full(self) -> bool:
        return shutil.disk_usage(self._porter.folder.leases).free < DISK_FULL_BYTES

    async def _sleep(self, seconds: float, *, until_stop: bool) -> None:
        """Pause, but not past the moment when a stop is asked."""
        if not until_stop:
            await asyncio.sleep(seconds)
            return
        try:
            await asyncio.wait_for(self._stop_asked.wait(), seconds)
        except TimeoutError:
            return

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, or StopAskedError as soon as the lease is stopped."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stop_asked.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise StopAskedError
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
