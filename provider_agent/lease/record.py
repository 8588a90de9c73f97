"""What the agent keeps of one lease: the journal's entry, the meter, the receipts, and whether it is to stop."""

from __future__ import annotations

import logging

from provider_agent import protocol
from provider_agent.context import AgentContext
from provider_agent.errors import JournalFailed
from provider_agent.executors.base import LOG_BYTES_MAX, WORK_NAME, log_path
from provider_agent.journal import LeaseEntry
from provider_agent.lease.meter import Meter
from provider_agent.lease.receipts import EVENT_BYTES_MAX, ReceiptBook
from provider_agent.lease.snapshot import file_size, read_bytes
from provider_agent.lease.stop_signal import StopSignal
from provider_agent.lease.workfolder import EVENTS_NAME
from provider_agent.protocol import MESSAGE_CHARACTERS_MAX, AttemptState, LeaseReport, Reason
from runtimes.contract import JOINED_FILE, LOST_PEER_FILE, SIZES_FILE

EVENT_BYTES_READ = 256 * 1024
NUMBER_DIGITS_MAX = 10

log = logging.getLogger(__name__)


class LeaseRecord:
    """The only writer of a lease's state on this node; every change is journaled."""

    def __init__(self, context: AgentContext, entry: LeaseEntry) -> None:
        self._context = context
        self.entry = entry
        self.folder = context.folder.lease(entry.lease_id)
        self.work = self.folder / WORK_NAME
        self.events = self.work / EVENTS_NAME
        self.book = ReceiptBook(context, entry, self.events)
        self.stop = StopSignal(is_set=entry.stop_reason is not None)
        self._meter = Meter(entry.billable_ms)

    def change(self, state: AttemptState) -> None:
        """Journal a new state and report it to the server at once."""
        self.entry.state = state
        self.save()
        self._context.wake.set()

    def save(self) -> None:
        """Journal this lease as it is. On a full disk what runs goes on, and it is journaled with the next change."""
        self.entry.billable_ms = self._meter.read_ms()
        try:
            self._context.journal.save_lease(self.entry)
        except JournalFailed as error:
            log.error("%s lease_id=%s state=%s", error, self.entry.lease_id, self.entry.state)

    def request_stop(self, reason: Reason) -> None:
        """Stop for `reason`; the first reason stays."""
        if self.entry.has_ended or self.entry.stop_reason is not None:
            return
        self.entry.stop_reason = reason
        self.save()
        self.stop.set()
        log.info("Stop requested. lease_id=%s reason=%s", self.entry.lease_id, reason)

    def start_metering(self) -> None:
        """The program was seen to be healthy: time counts from now on."""
        self._meter.start()

    def stop_metering(self) -> None:
        """Only RUNNING is metered; the last receipt has the total."""
        self._meter.stop()
        self.book.make(self.billable_ms())
        if self.entry.state is AttemptState.RUNNING:
            self.change(AttemptState.STOPPING)

    def metered_ms(self) -> int:
        """How long the program was seen running."""
        return self._meter.read_ms()

    def billable_ms(self) -> int:
        """What was metered, up to what the lease's cap pays for."""
        assignment = self.entry.assignment
        payable_ms = protocol.payable_ms(assignment.rate_per_hour, assignment.cap)
        return min(self._meter.read_ms(), payable_ms)

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
            billable_ms=self.billable_ms(),
            log_bytes=min(file_size(log_path(self.folder)), LOG_BYTES_MAX),
            event_bytes=min(file_size(self.events), EVENT_BYTES_MAX),
            receipt_seq=self.book.seq,
            generation=entry.assignment.generation,
            follows_generations=self.joined_generation() is not None,
            follows_sizes=self.follows_sizes(),
            lost_peer=self.has_lost_peer(),
        )

    def joined_generation(self) -> int | None:
        """The generation of its gang that the program's launcher has joined; None where it follows none."""
        if self.entry.assignment.gang.nodes == 1 or self.entry.assignment.program.command:
            return None
        return self._read_number(JOINED_FILE)

    def follows_sizes(self) -> bool:
        """Whether the launcher that follows generations goes on in a gang of another size; one of before does not."""
        joined = self.joined_generation()
        return joined is not None and self._read_number(SIZES_FILE) is not None

    def has_lost_peer(self) -> bool:
        """Whether the ranks of the assignment's generation ended here because they lost a peer, by the launcher's
        word; it waits for the next generation."""
        joined = self.joined_generation()
        return joined == self.entry.assignment.generation and joined == self._read_number(LOST_PEER_FILE)

    def first_events(self) -> bytes:
        """The beginning of the program's events."""
        return read_bytes(self.events, 0, EVENT_BYTES_READ)

    def last_events(self) -> bytes:
        """The end of the program's events."""
        size = file_size(self.events)
        return read_bytes(self.events, max(size - EVENT_BYTES_READ, 0), EVENT_BYTES_READ)

    def _read_number(self, name: str) -> int | None:
        try:
            return int(read_bytes(self.work.resolve() / name, 0, NUMBER_DIGITS_MAX))
        except ValueError:
            return None
