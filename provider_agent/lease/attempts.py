"""The lifecycle of one lease on this node: prepare, start or adopt, watch, wrap up, end.

    assigned -> preparing -> running -> stopping -> succeeded | failed | cancelled | lost

Every step is journaled before it is taken, so that a new agent goes on where the old one was stopped. record.py keeps
the lease's state, watching.py the program's time from its start to its end.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime

from provider_agent.context import AgentContext
from provider_agent.errors import AgentError, AssignmentRefused
from provider_agent.executors.base import LOG_BYTES_MAX, Exit, Handle, append_to_log, log_path, write_preamble
from provider_agent.executors.scratch import is_full
from provider_agent.journal import LeaseEntry
from provider_agent.lease.artifact_shipper import ArtifactShipper
from provider_agent.lease.cache.environments import take_environment
from provider_agent.lease.cache.intake import take_entries
from provider_agent.lease.cache.prepared import PreparedShipper
from provider_agent.lease.cache.room import GIB
from provider_agent.lease.deadline import LeaseDeadline
from provider_agent.lease.dependencies.environments import open_environment
from provider_agent.lease.dependencies.launcher import with_dependencies
from provider_agent.lease.disk_use import has_filled
from provider_agent.lease.endings import Ending, last_failure, name_ending, name_error, name_refusal
from provider_agent.lease.log_shipper import ship_stream
from provider_agent.lease.preparation import prepare
from provider_agent.lease.receipts import EVENT_BYTES_MAX, ship_receipts
from provider_agent.lease.record import LeaseRecord
from provider_agent.lease.runtimes.registry import runtime_of
from provider_agent.lease.serving import publish_replica
from provider_agent.lease.stop_signal import StopRequestedError
from provider_agent.lease.usage_statements import open_usage_statements, ship_usage_statements
from provider_agent.lease.watching import Watch
from provider_agent.lease.workfolder import drop_secrets
from provider_agent.loop_supervisor import LoopStatus, Run, keep_running
from provider_agent.protocol import REASONS, AttemptState, LeaseReport, Reason, without_node_paths
from provider_agent.system.removal import remove_tree
from runtimes import contract

CHECKPOINT_DRAIN_SECONDS_MAX = 120.0
DISK_FULL_BYTES = 64 * 1024 * 1024
LEASE_DISK_FULL_BYTES = 1024 * 1024
REASONS_OF_FULL_DISKS = frozenset({Reason.DISK_FULL, Reason.UPLOAD_FAILED, Reason.INTERNAL})
REASONS_WITHOUT_CONTACT = frozenset({Reason.LEASE_EXPIRED, Reason.NODE_SILENT})

log = logging.getLogger(__name__)


class Attempt:
    """One lease's part of an attempt, and the tasks that keep it going."""

    def __init__(self, context: AgentContext, entry: LeaseEntry, *, server_time: datetime | None = None) -> None:
        self._context = context
        self._record = LeaseRecord(context, entry)
        self._folder = self._record.folder
        self._deadline = LeaseDeadline()
        self._shipper = ArtifactShipper(context, entry)
        self._watch = Watch(context, self._record, self._deadline, self._shipper)
        self._tasks: list[asyncio.Task[None]] = []
        self.extend_lease(entry.lease_until, server_time=server_time)

    # --- for the loops of the agent

    def launch(self) -> None:
        """Continue from the state that the journal has for this lease."""
        entry, context, record = self.entry, self._context, self._record
        log_file = log_path(self._folder)
        self._tasks = [
            self._start_task("run", self._run),
            self._start_task("logs", lambda: ship_stream(context, entry, "logs", log_file, bytes_max=LOG_BYTES_MAX)),
            self._start_task(
                "events", lambda: ship_stream(context, entry, "events", record.events, bytes_max=EVENT_BYTES_MAX)
            ),
            self._start_task("receipts", lambda: ship_receipts(context, entry, record.book)),
            self._start_task("artifacts", self._shipper.loop),
            self._start_task("prepared data", PreparedShipper(context, record, self._shipper).loop),
        ]
        tunnels = context.tunnels
        if tunnels is not None and self._is_announced():
            book = open_usage_statements(context, entry, self._folder)
            self._tasks += [
                self._start_task("announcement", lambda: publish_replica(context, record)),
                self._start_task(
                    "usage statements",
                    lambda: ship_usage_statements(context, entry, book, lambda: tunnels.counts(entry.lease_id)),
                ),
            ]

    def _start_task(self, name: str, run: Run) -> asyncio.Task[None]:
        """Run it until it is done; one that fails is restarted, so that no part of a lease stops without notice."""
        status = LoopStatus(f"{name} of lease {self.entry.lease_id}")
        return asyncio.create_task(keep_running(status, run, is_endless=False))

    def _is_announced(self) -> bool:
        try:
            return runtime_of(self.entry.assignment).is_announced(self.entry.assignment)
        except AssignmentRefused:  # from the journal of a newer agent; the attempt ends with this reason
            return False

    @property
    def entry(self) -> LeaseEntry:
        """This lease in the journal."""
        return self._record.entry

    @property
    def lease_deadline(self) -> float:
        """Until when it lasts, by the monotonic clock."""
        return self._deadline.at

    def extend_lease(self, until: datetime, *, server_time: datetime | None = None) -> None:
        """Move the end of the lease: as the server set it at `server_time`, or, without one, as the journal has it."""
        self.entry.lease_until = until
        if server_time is not None:
            self._deadline.set_by_server(until, server_time=server_time)
        else:
            self._deadline.set_from_journal(until, now=self._context.client.server_now())

    def request_stop(self, reason: Reason) -> None:
        """Stop for `reason`; the first reason stays."""
        self._record.request_stop(reason)

    def report(self) -> LeaseReport:
        """This lease as it is now."""
        return self._record.report()

    async def wait_until_ended(self) -> None:
        """Return once the lease has ended; its last bytes may still be on their way."""
        await asyncio.wait(self._tasks[:1])

    async def close(self) -> None:
        """Stop watching; the program continues and the next agent adopts it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def forget(self) -> None:
        """Remove every trace of an ended lease but its devices' fences."""
        await self.close()
        if self.entry.handle is not None:
            await self._context.executor.cleanup(self.entry.handle)
        await self._context.executor.remove_room(self._folder)
        await asyncio.to_thread(remove_tree, self._folder)
        self._context.journal.forget_lease(self.entry.lease_id)
        log.info("Lease forgotten. lease_id=%s", self.entry.lease_id)

    # --- the lifecycle

    async def _run(self) -> None:
        if self.entry.has_ended:
            return
        try:
            ending = await self._live()
        except StopRequestedError:
            ending = Ending(self.entry.stop_reason or Reason.INTERNAL, "stopped before the program started")
        except Exception as error:
            ending = await self._name_error(error)
        self._end(await self._name_filled(ending))

    async def _live(self) -> Ending:
        async with self._hold_devices():
            if self.entry.exit is not None:
                ended = Exit.from_dict(self.entry.exit)
            else:
                handle = await self._find() or await self._start()
                ended = await self._watch.until_ended(handle)
        return await self._wrap_up(ended)

    @asynccontextmanager
    async def _hold_devices(self) -> AsyncIterator[None]:
        """Wait until earlier programs have left our devices; in one order, so that no two wait for each other."""
        async with AsyncExitStack() as stack:
            for uuid in sorted(self.entry.assignment.device_uuids):
                holding = stack.enter_async_context(self._context.device_locks[uuid])
                is_new = self.entry.state is AttemptState.ASSIGNED
                await (self._record.stop.unless_stopped(holding) if is_new else holding)
            yield

    async def _find(self) -> Handle | None:
        """The program that an earlier agent started for this lease, if it did."""
        if self.entry.state is AttemptState.ASSIGNED:
            return None
        handle = await self._context.executor.adopt(self.entry.lease_id, self._folder, self.entry.handle)
        if handle is not None:
            log.info("Program adopted. lease_id=%s", self.entry.lease_id)
            self.entry.handle = handle
            self._record.save()
        return handle

    async def _start(self) -> Handle:
        """Prepare and start. The state is journaled before, the handle right after."""
        self._record.change(AttemptState.PREPARING)
        self._context.journal.save_lease(self.entry)  # nothing is started that would not be known after a restart
        spec = await self._record.stop.unless_stopped(prepare(self._context, self.entry.assignment))
        self._log_limits(self._context.executor.describe(spec))
        await self._record.stop.unless_stopped(
            self._context.executor.ready(spec, contract.EventWriter(str(self._record.events)).write)
        )
        program = self.entry.assignment.program
        kept = await self._record.stop.unless_stopped(open_environment(self._context, self.entry.assignment, spec))
        handle = await self._context.executor.start(with_dependencies(self._context.executor, program, spec, kept))
        self.entry.handle = handle
        self._record.save()
        drop_secrets(self._folder)
        log.info("Program started. lease_id=%s executor=%s", self.entry.lease_id, self._context.executor.name)
        return handle

    def _log_limits(self, facts: list[str]) -> None:
        """Which limits and permissions apply, for the provider's log and, before anything else, the customer's."""
        for fact in facts:
            log.info("Applies: %s lease_id=%s", fact, self.entry.lease_id)
        write_preamble(self._folder, [without_node_paths(fact, None, own=self._own_folders()) for fact in facts])

    async def _wrap_up(self, ended: Exit) -> Ending:
        """Name the ending, then ship what must be there before it is reported: checkpoints, and the output.

        Last the cache takes what was left for it: a next attempt may begin here as soon as this one has ended. Not
        where the lease was stopped: who stops it waits for its end, and a node that leaves has no time.
        """
        ending = await self._ship_last(ended, self._name_exit(ended))
        if self.entry.stop_reason is None and not ended.lease_expired:
            await self._take_entries()
        return ending

    def _name_exit(self, ended: Exit) -> Ending:
        """The ending by how the program ended; a full disk is named where one can be the cause."""
        ending = name_ending(
            ended,
            stop_reason=self.entry.stop_reason,
            is_builtin=not self.entry.assignment.program.command,
            failure=last_failure(self._record.last_events()),
        )
        if ending.reason is Reason.EXIT_NONZERO and self._is_disk_full():
            return Ending(Reason.DISK_FULL, "the node's disk is full", ending.exit_code)
        if ending.reason is Reason.EXIT_NONZERO and is_full(self._folder, LEASE_DISK_FULL_BYTES):
            return Ending(ending.reason, f"{ending.message}; the job's disk on this node is full", ending.exit_code)
        return ending

    async def _ship_last(self, ended: Exit, ending: Ending) -> Ending:
        """Checkpoints, and the output of a program that completed; the ending, another one where that failed."""
        is_over = ending.reason in REASONS_WITHOUT_CONTACT or ending.reason is Reason.COMPLETED
        await self._watch.finish_checkpoints(ended, with_last=not is_over)
        if ending.reason in REASONS_WITHOUT_CONTACT:
            return ending
        if ending.reason is Reason.COMPLETED:
            try:
                return await self._ship_output(ending)
            except (AgentError, OSError, ValueError, TimeoutError) as error:
                return name_refusal(error, ending.exit_code)
        try:
            await asyncio.wait_for(self._shipper.ship_waiting(), CHECKPOINT_DRAIN_SECONDS_MAX)
        except (AgentError, OSError, ValueError, TimeoutError) as error:
            log.warning("The last checkpoint was not shipped: %s lease_id=%s", error, self.entry.lease_id)
        return ending

    async def _take_entries(self) -> None:
        """Into the node's cache, whatever the program's exit code; that it cannot be kept fails no attempt."""
        bytes_max = self._context.config.cache_gib * GIB
        has_cache = runtime_of(self.entry.assignment).has_cache(self.entry.assignment)
        take = take_entries if has_cache else take_environment  # the second takes nothing where there is no key
        try:
            lines = await asyncio.to_thread(
                take, self._context.folder, self._folder, self._record.work.resolve(), bytes_max=bytes_max
            )
            append_to_log(self._folder, lines)
        except Exception as error:  # the work is done, and shipped
            log.warning("Not all was kept in the cache: %s lease_id=%s", error, self.entry.lease_id)

    async def _ship_output(self, ending: Ending) -> Ending:
        """Completed, once the output has arrived; who is asked to stop before has as long as for a checkpoint."""
        shipping = asyncio.ensure_future(self._shipper.ship_output(self._record.billable_ms()))

        async def shipped() -> None:
            await asyncio.shield(shipping)

        try:
            await self._record.stop.unless_stopped(shipped())
        except StopRequestedError:
            try:
                await asyncio.wait_for(shipping, CHECKPOINT_DRAIN_SECONDS_MAX)
            except TimeoutError:
                reason = self.entry.stop_reason or Reason.INTERNAL
                return Ending(reason, "stopped before its output had arrived", ending.exit_code)
        finally:
            shipping.cancel()
        return ending

    def _end(self, ending: Ending) -> None:
        """Journal the end of this lease, before it is reported."""
        self._record.stop_metering()
        entry = self.entry
        entry.reason, entry.exit_code = ending.reason, ending.exit_code
        entry.message = without_node_paths(ending.message, ending.reason, own=self._own_folders())
        drop_secrets(self._folder)
        self._record.change(REASONS[ending.reason].state)
        self._context.failures.note(ending.reason)
        log.info(
            "Lease ended. lease_id=%s state=%s reason=%s message=%s",
            entry.lease_id,
            entry.state,
            entry.reason,
            ending.message,
        )

    def _own_folders(self) -> list[str]:
        """Folders of this node that no customer learns of, as messages may name them."""
        root = self._context.folder.root
        return [str(root), str(root.resolve()), sys.prefix]

    async def _name_error(self, error: Exception) -> Ending:
        """An ending for what went wrong on our side; the program, if there is one, is ended first."""
        log.error("Lease failed: %s lease_id=%s", error, self.entry.lease_id, exc_info=error)
        if self.entry.handle is not None and self.entry.exit is None:
            try:
                await self._context.executor.kill(self.entry.handle)
            except AgentError as second:
                log.error("The program could not be killed: %s lease_id=%s", second, self.entry.lease_id)
        return name_error(error, has_started=self.entry.handle is not None)

    async def _name_filled(self, ending: Ending) -> Ending:
        """The same ending, or the customer's own where their program filled the node's disk."""
        if not self.entry.assignment.program.command or ending.reason not in REASONS_OF_FULL_DISKS:
            return ending
        if not self._is_disk_full() or not await asyncio.to_thread(has_filled, self._folder):
            return ending
        log.warning("The program filled this node's disk. lease_id=%s", self.entry.lease_id)
        return Ending(Reason.EXIT_NONZERO, "the job filled this node's disk", ending.exit_code)

    def _is_disk_full(self) -> bool:
        return shutil.disk_usage(self._context.folder.leases).free < DISK_FULL_BYTES
