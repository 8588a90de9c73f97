"""Ships a lease's log and events by offset, so that a repeat or a lost reply changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Literal

from provider_agent import protocol
from provider_agent.context import AgentContext
from provider_agent.errors import AgentError, JournalFailed, Retryable
from provider_agent.journal import LeaseEntry
from provider_agent.lease.snapshot import file_size, read_bytes

PAUSE_SECONDS = 0.4
GATHER_SECONDS = 2.0  # between appends that are not full: each append costs the program some milliseconds
PAUSE_SECONDS_FAILED = 1.0
PAUSE_SECONDS_REFUSED = 15.0

log = logging.getLogger(__name__)
Stream = Literal["logs", "events"]


async def ship_stream(context: AgentContext, entry: LeaseEntry, stream: Stream, path: Path, *, bytes_max: int) -> None:
    """Append what the file has grown by, until the lease has ended and the server has every byte."""
    while True:
        has_ended = entry.has_ended  # read before the size: an ended lease's file does not grow
        sent = entry.log_sent if stream == "logs" else entry.event_sent
        size = min(file_size(path), bytes_max)
        if sent >= size:
            if has_ended:
                return
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        data = read_bytes(path, sent, min(size - sent, protocol.APPEND_BYTES_MAX))
        try:
            offset = await context.client.append(
                entry.lease_id, stream, offset=sent, fence=entry.assignment.fence, data=data
            )
        except AgentError as error:
            log.warning("An append was not accepted: %s lease_id=%s stream=%s", error, entry.lease_id, stream)
            await asyncio.sleep(PAUSE_SECONDS_FAILED if isinstance(error, Retryable) else PAUSE_SECONDS_REFUSED)
            continue
        if offset > size or offset == sent:  # it claims bytes that we never had, or took none: do not spin
            await asyncio.sleep(PAUSE_SECONDS_FAILED)
        _keep_offset(context, entry, stream, min(offset, size))
        if not has_ended and len(data) < protocol.APPEND_BYTES_MAX:
            await asyncio.sleep(GATHER_SECONDS)


def _keep_offset(context: AgentContext, entry: LeaseEntry, stream: Stream, offset: int) -> None:
    if stream == "logs":
        entry.log_sent = offset
    else:
        entry.event_sent = offset
    with contextlib.suppress(JournalFailed):  # the server has it too, and reports it
        context.journal.save_offset(entry.lease_id, stream, offset)
