"""Ends a lease by itself when its time has passed without contact: nobody pays for it, and another has the devices."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from uuid import UUID

from provider_agent.lease.attempts import Attempt
from provider_agent.protocol import Reason

CHECK_SECONDS = 0.5
CHECK_SECONDS_IDLE = 1.0  # a lease lasts longer, and an agent at rest should cost nothing

log = logging.getLogger(__name__)


async def watch_leases(attempts: Mapping[UUID, Attempt]) -> None:
    """Stop every live lease whose deadline has passed. Runs until it is cancelled."""
    while True:
        now = time.monotonic()
        for attempt in list(attempts.values()):
            entry = attempt.entry
            if not entry.has_ended and entry.stop_reason is None and now > attempt.lease_deadline:
                log.warning("The lease ran out without contact. lease_id=%s", entry.lease_id)
                attempt.request_stop(Reason.LEASE_EXPIRED)
        is_idle = all(attempt.entry.has_ended for attempt in attempts.values())
        await asyncio.sleep(CHECK_SECONDS_IDLE if is_idle else CHECK_SECONDS)
