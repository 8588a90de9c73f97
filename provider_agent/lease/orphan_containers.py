"""Compares the programs that run here with the leases on every beat, in both directions.

    a program without a lease   (or one whose lease has ended here) is killed, and counted
    a lease without a program   ends as process_vanished (attempts.py): charged up to the last checkpoint, the rest of
                                the seconds is refunded; the marketplace finds a lease that no agent has

Programs that this agent started or adopted have a task that watches them; those of another agent on this computer are
not touched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from uuid import UUID

from provider_agent.context import AgentContext
from provider_agent.errors import AgentError, JournalFailed
from provider_agent.lease.attempts import Attempt

FACT_KILLED = "ghosts_killed"  # the count's name in the journal, from before these were called orphans
ORPHANS_PER_SWEEP_MAX = 256

log = logging.getLogger(__name__)


async def sweep_orphans(context: AgentContext, attempts: Mapping[UUID, Attempt]) -> None:
    """Sweep once a beat until cancelled; after an engine that does not answer, sweep again with the next beat."""
    context.orphans_killed = int(context.journal.load_fact(FACT_KILLED) or 0)
    while True:
        try:
            await sweep_once(context, attempts)
        except (AgentError, OSError) as error:
            log.warning("The sweep for programs without a lease failed: %s", error)
        await asyncio.sleep(context.heartbeat.seconds)


async def sweep_once(context: AgentContext, attempts: Mapping[UUID, Attempt]) -> int:
    """Kill every program without a live lease; returns how many there were."""
    strays = await context.executor.find_strays(context.folder.leases)
    orphans = [lease_id for lease_id in strays if lease_id not in attempts or attempts[lease_id].entry.has_ended]
    for lease_id in orphans[:ORPHANS_PER_SWEEP_MAX]:
        log.error("A program without a lease was found and is killed. lease_id=%s", lease_id)
        await context.executor.kill_stray(lease_id)
        context.orphans_killed += 1
    if orphans:
        try:
            context.journal.save_fact(FACT_KILLED, str(context.orphans_killed))
        except JournalFailed as error:
            log.error("%s", error)
    return len(orphans)
