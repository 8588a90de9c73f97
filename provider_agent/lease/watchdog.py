"""Ends leases by itself: one whose time has passed without contact, and all of a machine that is to be taken away.

deadline   nobody pays for it any longer, and another has the devices
leaving    `souk-agent drain --now` leaves a file: each program is asked to end, saves, and its checkpoint is sent
           before the machine is gone. The file counts for LEAVING_SECONDS, so that one that was forgotten ends no
           work of a node that stayed. It needs no server: the order may come while that cannot be reached.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from provider_agent.lease.attempts import Attempt
from provider_agent.protocol import Reason

LEAVING_SECONDS = 600.0  # five times the longest notice that clouds give
CHECK_SECONDS = 0.5
CHECK_SECONDS_IDLE = 1.0  # a lease lasts longer, and an agent at rest should cost nothing

log = logging.getLogger(__name__)


async def watch_leases(attempts: Mapping[UUID, Attempt], *, leaving: Path) -> None:
    """Stop every live lease whose deadline has passed, and all while `leaving` counts. Runs until it is cancelled."""
    while True:
        now, is_leaving = time.monotonic(), has_to_leave(leaving)
        for attempt in list(attempts.values()):
            entry = attempt.entry
            if not entry.has_ended and entry.stop_reason is None and now > attempt.lease_deadline:
                log.warning("The lease ran out without contact. lease_id=%s", entry.lease_id)
                attempt.request_stop(Reason.LEASE_EXPIRED)
            elif not entry.has_ended and entry.stop_reason is None and is_leaving:
                log.warning("The machine is about to be taken away. lease_id=%s", entry.lease_id)
                attempt.request_stop(Reason.NODE_DRAINED)
        is_idle = all(attempt.entry.has_ended for attempt in attempts.values())
        await asyncio.sleep(CHECK_SECONDS_IDLE if is_idle else CHECK_SECONDS)


def has_to_leave(leaving: Path) -> bool:
    """Whether the file is there and not too old; one from a clock that was ahead counts for as long."""
    try:
        return abs(time.time() - leaving.stat().st_mtime) < LEAVING_SECONDS
    except OSError:
        return False
