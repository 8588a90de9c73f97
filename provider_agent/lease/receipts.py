"""Makes a lease's receipts and brings them to the server: cumulative, gapless, chained, stored before they are sent.

One every RECEIPT_SECONDS while the program runs, one at each complete checkpoint, one at the end. A receipt once
stored is never changed: the server treats a second one with the same sequence as evidence.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from pathlib import Path

from provider_agent import protocol
from provider_agent.context import AgentContext
from provider_agent.errors import AgentError, JournalFailed, Refused, Retryable
from provider_agent.journal import LeaseEntry
from provider_agent.lease.snapshot import read_bytes
from provider_agent.protocol import UsageReceipt
from provider_agent.protocol.backoff import backoff_seconds

RECEIPT_SECONDS = 5.0  # as often as it beats; one takes half a millisecond to sign
EVENT_BYTES_MAX = 64 * 1024 * 1024  # hashed and shipped of one lease's events; later bytes are ignored
HASH_BYTES = 1 << 20
PAUSE_SECONDS = 1.0
PAUSE_SECONDS_REFUSED = 10.0
PAUSE_SECONDS_MAX = 60.0
LOG_SECONDS = 60.0  # between two lines of the log about receipts of one lease that were not accepted

log = logging.getLogger(__name__)


class ReceiptBook:
    """The receipts of one lease."""

    def __init__(self, context: AgentContext, entry: LeaseEntry, events: Path) -> None:
        self._context = context
        self._entry = entry
        self._events = events
        self._hash = hashlib.sha256()
        self._hashed = 0
        self.made = asyncio.Event()
        newest = context.journal.newest_receipt(entry.lease_id)
        self._seq = newest[0].receipt.seq if newest else 0
        self._digest = newest[1] if newest else protocol.ZERO_HASH
        self._billable_ms = newest[0].receipt.billable_ms if newest else 0

    @property
    def seq(self) -> int:
        """The newest receipt's sequence; 0 before the first."""
        return self._seq

    def make(self, billable_ms: int) -> None:
        """Sign and store the next receipt, together with the meter; none if nothing new was metered."""
        assignment = self._entry.assignment
        # Time beyond the cap is not claimed, so that every receipt's amount is exactly rate x time.
        billable_ms = min(billable_ms, protocol.payable_ms(assignment.rate_per_hour, assignment.cap))
        if billable_ms <= self._billable_ms:
            return
        receipt = UsageReceipt(
            job_id=assignment.job_id,
            lease_id=assignment.lease_id,
            **assignment.receipt_parties.model_dump(),
            seq=self._seq + 1,
            billable_ms=billable_ms,
            cumulative_amount=protocol.charge(assignment.rate_per_hour, billable_ms),
            meter_hash=self._meter_hash(),
            prev_digest=self._digest,
        )
        signed = protocol.sign_receipt(self._context.keys.receipt_hex, receipt, assignment.receipt_domain)
        digest = protocol.receipt_digest(receipt, assignment.receipt_domain)
        self._entry.billable_ms = billable_ms
        try:
            with self._context.journal.transaction():
                self._context.journal.save_receipt(signed, digest)
                self._context.journal.save_lease(self._entry)
        except JournalFailed as error:  # the next one claims this time too; one that is not stored is not sent
            log.error("No receipt was made: %s lease_id=%s", error, self._entry.lease_id)
            return
        self._seq, self._digest, self._billable_ms = receipt.seq, digest, billable_ms
        self.made.set()

    def _meter_hash(self) -> str:
        """SHA-256 of the event bytes so far, hashed once each."""
        while data := read_bytes(self._events, self._hashed, min(HASH_BYTES, EVENT_BYTES_MAX - self._hashed)):
            self._hash.update(data)
            self._hashed += len(data)
        return "0x" + self._hash.hexdigest()


async def ship_receipts(context: AgentContext, entry: LeaseEntry, book: ReceiptBook) -> None:
    """Send what the server has not accepted, in order, until the lease has ended and nothing is left.

    A refusal is no end. The server believes one beat more than it saw of the lease. Whoever ran while the network was
    split claims more: that is accepted once the server has seen as much, or never. Nothing is dropped before the server
    says that the lease is settled.
    """
    retries = ReceiptRetries(entry)
    while True:
        book.made.clear()
        waiting = context.journal.unacknowledged_receipts(entry.lease_id, protocol.RECEIPTS_PER_APPEND_MAX)
        if not waiting:
            if entry.has_ended:
                return
            await _wait(book.made, PAUSE_SECONDS)
            continue
        try:
            seq = await context.client.send_receipts(entry.lease_id, waiting, fence=entry.assignment.fence)
        except AgentError as error:
            retries.log_failure(error)
            if isinstance(error, Refused) and isinstance(error.details.get("seq"), int):
                _acknowledge(context, entry, error.details["seq"])  # those before the refused one were accepted
            await retries.pause(error)
            continue
        retries.note_success()
        if not _acknowledge(context, entry, seq):  # they are sent again, which is harmless
            await asyncio.sleep(PAUSE_SECONDS_REFUSED)
        if seq < waiting[0].receipt.seq:  # the server expects none of these yet
            await asyncio.sleep(PAUSE_SECONDS)


class ReceiptRetries:
    """How long to wait after receipts of one lease were not accepted, and when to log that again."""

    def __init__(self, entry: LeaseEntry) -> None:
        self._entry = entry
        self._refusals = 0  # in a row
        self._logged_at = -LOG_SECONDS

    def note_success(self) -> None:
        """The server accepted receipts: the next refusal is the first one again."""
        self._refusals = 0

    def log_failure(self, error: AgentError) -> None:
        """Log at most one line per LOG_SECONDS."""
        now = time.monotonic()
        if now >= self._logged_at + LOG_SECONDS:
            self._logged_at = now
            log.warning("Receipts were not accepted, and are kept: %s lease_id=%s", error, self._entry.lease_id)

    async def pause(self, error: AgentError) -> None:
        """Wait a moment if the server did not answer; after refusals longer each time, but not past the lease's end."""
        if isinstance(error, Retryable):
            await asyncio.sleep(PAUSE_SECONDS)
            return
        self._refusals += 1
        seconds = backoff_seconds(self._refusals, first=PAUSE_SECONDS_REFUSED, most=PAUSE_SECONDS_MAX)
        until, had_ended = time.monotonic() + seconds, self._entry.has_ended
        while (left := until - time.monotonic()) > 0:
            if self._entry.has_ended and not had_ended:
                self._refusals = 0  # the server now sees the lease's end, and waits for the last receipt for a while
                return
            await asyncio.sleep(min(left, PAUSE_SECONDS))


def _acknowledge(context: AgentContext, entry: LeaseEntry, seq: int) -> bool:
    try:
        context.journal.acknowledge_receipts(entry.lease_id, seq)
    except JournalFailed:
        return False
    return True


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
