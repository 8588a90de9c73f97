"""The ghost sweep: what runs here is compared with the leases on every beat, both ways.

    a program without a lease   (or one whose lease has ended here) is killed, and counted
    a lease without a program   ends as process_vanished (attempts.py): charged up to the last checkpoint, the rest of
                                the seconds is refunded; the marketplace finds one that no agent knows (jobs/reports.py)

What this agent started or adopted somebody in it looks after; programs of another agent of this machine are its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from uuid import UUID

from provider_agent.attempts import Attempt
from provider_agent.errors import AgentError, JournalFailed
from provider_agent.porter import Porter

FACT_KILLED = "ghosts_killed"
GHOSTS_PER_SWEEP_MAX = 256

log = logging.getLogger(__name__)


async def sweep_ghosts(porter: Porter, attempts: Mapping[UUID, Attempt]) -> None:
    """Sweep once a beat until cancelled; an engine that does not answer is asked with the next one."""
    porter.ghosts_killed = int(porter.journal.load_fact(FACT_KILLED) or 0)
    while True:
        try:
            await sweep_once(porter, attempts)
        except (AgentError, OSError) as error:
            log.warning("The sweep for programs without a lease failed: %s", error)
        await asyncio.sleep(porter.heartbeat.seconds)


async def sweep_once(porter: Porter, attempts: Mapping[UUID, Attempt]) -> int:
    """Kill what runs without a lease; returns how many."""
    strays = await porter.executor.find_strays(porter.folder.leases)
    ghosts = [lease_id for lease_id in strays if lease_id not in attempts or attempts[lease_id].entry.has_ended]
    for lease_id in ghosts[:GHOSTS_PER_SWEEP_MAX]:
        log.error("A program without a lease was found and is killed. lease_id=%s", lease_id)
        await porter.executor.kill_stray(lease_id)
        porter.ghosts_killed += 1
    if ghosts:
        try:
            porter.journal.save_fact(FACT_KILLED, str(porter.ghosts_killed))
        except JournalFailed as error:
            log.error("%s", error)
    return len(ghosts)
