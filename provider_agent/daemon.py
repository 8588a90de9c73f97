"""`souk-agent start`: brings the loops up, and down again.

    sync        says what is, hears what should be            sync.py
    watchdog    ends leases whose time passed without contact  watchdog.py
    attempts    one task a lease, with its shippers            attempts.py
    benchmark   once, before the node's offer is rentable      benchmark.py
    ghosts      programs without a lease                       ghosts.py
    health      figures, and devices that fail                 health.py
    ability     whether models can be served here              ability_to_serve.py
    examination when programs fail in a row                    examination.py

When the agent ends, programs go on; the next agent adopts them (unless it was started with stop_work_on_exit).
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from provider_agent.ability_to_serve import keep_looking, look_before_start
from provider_agent.assembly import assemble
from provider_agent.atomic import write_atomically
from provider_agent.benchmark import measure_once
from provider_agent.config import DataFolder
from provider_agent.errors import AgentAlreadyRuns, AgentError
from provider_agent.examination import examine_when_failing
from provider_agent.executors.process import WARNING
from provider_agent.facts import agent_version, find_facts
from provider_agent.ghosts import sweep_ghosts
from provider_agent.health import Health
from provider_agent.machine import give_back_memory, measure_machine
from provider_agent.porter import Porter
from provider_agent.protocol import Reason
from provider_agent.sync import Sync
from provider_agent.tunnel import Tunnels
from provider_agent.updating.prefix import own_release
from provider_agent.updating.wish import update_facts
from provider_agent.watchdog import watch_leases

BENCHMARK_RETRY_SECONDS = 30.0
DRAIN_SECONDS_MAX = 120.0
LAST_WORDS_SECONDS_MAX = 10.0
LAST_WORDS_POLL_SECONDS = 0.05

log = logging.getLogger(__name__)


async def run_daemon(
    folder: DataFolder, *, stop_work_on_exit: bool = False, asked: asyncio.Event | None = None
) -> None:
    """Run until SIGTERM, SIGINT or `asked`; raises Refused when the server does not know this node any more."""
    folder.prepare()
    with only_agent(folder):
        porter = assemble(folder)
        try:
            await _run(porter, asked or _asked_by_signal(), stop_work_on_exit)
        finally:
            await porter.executor.close()
            await porter.client.close()
            porter.journal.close()


@contextmanager
def only_agent(folder: DataFolder) -> Iterator[None]:
    """Hold the data folder's lock; raises AgentAlreadyRuns when another agent does."""
    folder.prepare()
    with folder.lock.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AgentAlreadyRuns from error
        yield


async def _run(porter: Porter, asked: asyncio.Event, stop_work_on_exit: bool) -> None:
    engine_version = await porter.executor.check()
    await porter.executor.sweep()
    if porter.executor.name == "process":
        log.warning(WARNING)
    sync = Sync(
        porter,
        lambda: find_facts(
            porter.config,
            porter.folder,
            porter.devices_now(),
            executor=porter.executor,
            engine_version=engine_version,
            fabric_key=porter.keys.fabric_public_hex,
            speeds=porter.speeds,
            updates=update_facts(porter.folder),
            is_server=not porter.why_no_serving,
        ),
    )
    health = Health(porter, sync.attempts)
    await health.look()
    await look_before_start(porter)
    porter.tunnels = Tunnels(porter.keys.transport)
    porter.tunnels.start()
    sync.answered = lambda: write_status(porter, sync)
    sync.adopt_all()
    log.info("Agent started. node_id=%s pid=%s", porter.config.node_id, os.getpid())
    loops = [
        asyncio.create_task(sync.loop(), name="sync"),
        asyncio.create_task(watch_leases(sync.attempts), name="watchdog"),
        asyncio.create_task(_measure(porter), name="benchmark"),
        asyncio.create_task(_measure_machine(porter), name="machine"),
        asyncio.create_task(health.loop(), name="health"),
        asyncio.create_task(keep_looking(porter), name="ability to serve"),
        asyncio.create_task(sweep_ghosts(porter, sync.attempts), name="ghosts"),
        asyncio.create_task(examine_when_failing(porter), name="examination"),
    ]
    leaving = asyncio.create_task(asked.wait(), name="leaving")
    try:
        await asyncio.wait({leaving, loops[0], loops[1]}, return_when=asyncio.FIRST_COMPLETED)
        if leaving.done() and stop_work_on_exit:
            await _stop_work(porter, sync)
    finally:
        for task in (*loops, leaving):
            task.cancel()
        results = await asyncio.gather(*loops, return_exceptions=True)
        await sync.checks.close()
        await sync.links.close()
        for attempt in sync.attempts.values():
            await attempt.close()
        await porter.tunnels.close()
        health.close()
        log.info("Agent stopped. node_id=%s", porter.config.node_id)
    for result in results:
        if isinstance(result, Exception):
            raise result


async def _measure(porter: Porter) -> None:
    """Try until the benchmark was reported, and again when a device came that was not in it; else it is not rented."""
    while True:
        porter.devices_changed.clear()
        try:
            await measure_once(porter)
            give_back_memory()
            await porter.devices_changed.wait()
            continue
        except (AgentError, OSError, TimeoutError, KeyError, ValueError) as error:
            log.error("The benchmark failed and is tried again: %s", error)
        await asyncio.sleep(BENCHMARK_RETRY_SECONDS)


async def _measure_machine(porter: Porter) -> None:
    """Once a start, beside the work; the facts that follow have it."""
    porter.speeds = await measure_machine(porter.folder.root, porter.client)
    porter.facts_changed = True
    give_back_memory()


async def _stop_work(porter: Porter, sync: Sync) -> None:
    """End every program, and give the server a moment to hear of it."""
    live = [attempt for attempt in sync.attempts.values() if not attempt.entry.has_ended]
    for attempt in live:
        attempt.request_stop(Reason.NODE_DRAINED)
    if not live:
        return
    try:
        async with asyncio.timeout(DRAIN_SECONDS_MAX):
            await asyncio.gather(*(attempt.wait_until_ended() for attempt in live))
    except TimeoutError:
        log.error("Some programs did not end in %s s.", DRAIN_SECONDS_MAX)
    contact = porter.heartbeat.contacts
    try:
        async with asyncio.timeout(LAST_WORDS_SECONDS_MAX):
            while porter.heartbeat.contacts == contact:  # noqa: ASYNC110 - the sync loop counts
                await asyncio.sleep(LAST_WORDS_POLL_SECONDS)
    except TimeoutError:
        log.warning("The server did not answer the last report.")


def write_status(porter: Porter, sync: Sync) -> None:
    """What `souk-agent status` shows of a running agent."""
    status = {
        "pid": os.getpid(),
        "version": agent_version(),
        "release": own_release(),  # by which the updater knows that this release has checked in
        "wanted_version": sync.updates.wanted,
        "at": datetime.now(UTC).isoformat(),
        "contact_at": porter.heartbeat.contact_at.isoformat() if porter.heartbeat.contact_at else None,
        "faults": porter.faults,
        "node_state": sync.node_state,
        "silent_seconds": round(porter.heartbeat.silent_seconds(), 1),
        "beat_seconds": porter.heartbeat.seconds,
        "last_error": sync.last_error,
        "why_no_serving": porter.why_no_serving,
        "tunnels": porter.tunnels.status() if porter.tunnels else [],
        "served": porter.tunnels.served() if porter.tunnels else [],
    }
    try:
        write_atomically(porter.folder.status, json.dumps(status).encode(), mode=0o600)
    except OSError as error:
        log.error("The status could not be written: %s", error)


def _asked_by_signal() -> asyncio.Event:
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    return asked
