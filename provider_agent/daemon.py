"""`souk-agent start`: starts the loops, supervises them, stops them.

    sync                reports what is, receives what should be   sync.py
    watchdog            ends leases that ran out without contact    lease/watchdog.py
    orphan containers   ends programs without a lease               lease/orphan_containers.py
    health              figures, and devices that fail              node/health.py
    ability to serve    whether models can be served here           node/ability_to_serve.py
    self-test           when programs fail in a row                 node/self_test.py
    benchmark           before the node's offer is rentable         node/benchmark.py
    speeds              of disk and network, once a start           node/speeds.py

Each lease has a task of its own, with its shippers (lease/attempts.py). A loop that fails is restarted; one that keeps
failing ends the agent with exit status 11 (loop_supervisor.py). When the agent ends, programs go on; the next agent
adopts them (unless it was started with stop_work_on_exit).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from datetime import UTC, datetime

from provider_agent.assembly import assemble
from provider_agent.config import DataFolder
from provider_agent.context import AgentContext
from provider_agent.errors import AgentError, Refused
from provider_agent.executors.process import WARNING, warning_of_strangers
from provider_agent.facts import agent_version, find_facts
from provider_agent.lease.orphan_containers import sweep_orphans
from provider_agent.lease.watchdog import watch_leases
from provider_agent.loop_supervisor import LoopSupervisor
from provider_agent.node.ability_to_serve import keep_looking, look_before_start
from provider_agent.node.benchmark import measure_once
from provider_agent.node.health import Health
from provider_agent.node.self_test import run_self_tests
from provider_agent.node.speeds import give_back_memory, measure_speeds
from provider_agent.packaging.prefix import own_release
from provider_agent.protocol import Reason
from provider_agent.sync import Sync
from provider_agent.system.agent_lock import hold_agent_lock
from provider_agent.system.atomic import write_atomically
from provider_agent.tunnel import Tunnels
from provider_agent.updating.update_request import update_facts

BENCHMARK_RETRY_SECONDS = 30.0
DRAIN_SECONDS_MAX = 120.0
LAST_REPORT_SECONDS_MAX = 10.0
LAST_REPORT_POLL_SECONDS = 0.05

log = logging.getLogger(__name__)


async def run_daemon(folder: DataFolder, *, stop_work_on_exit: bool = False, stop: asyncio.Event | None = None) -> None:
    """Run until SIGTERM, SIGINT or `stop`.

    Raises Refused when the server has removed this node, LoopFailed when a loop keeps failing.
    """
    folder.prepare()
    with hold_agent_lock(folder.lock):
        context = assemble(folder)
        try:
            await _run(context, stop or _stop_on_signal(), stop_work_on_exit)
        finally:
            await context.executor.close()
            await context.client.close()
            context.journal.close()


async def _run(context: AgentContext, stop: asyncio.Event, stop_work_on_exit: bool) -> None:
    engine_version = await context.executor.check()
    await context.executor.sweep()
    if context.executor.name == "process":
        log.warning("%s %s", WARNING, warning_of_strangers(context.config.allow_strangers))
    sync = _build_sync(context, engine_version)
    health = Health(context, sync.attempts)
    await health.look()
    await look_before_start(context)
    context.tunnels = Tunnels(context.keys.transport)
    context.tunnels.start()
    supervisor = LoopSupervisor(on_failure=lambda: write_status(context, sync, supervisor))
    sync.answered = lambda: write_status(context, sync, supervisor)
    sync.adopt_all()
    log.info("Agent started. node_id=%s pid=%s", context.config.node_id, os.getpid())
    _start_loops(context, sync, health, supervisor)
    waits = [asyncio.create_task(stop.wait()), asyncio.create_task(supervisor.has_failed.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set() and stop_work_on_exit:
            await _stop_work(context, sync)
    finally:
        for task in waits:
            task.cancel()
        await supervisor.close()
        await sync.checks.close()
        await sync.links.close()
        for attempt in sync.attempts.values():
            await attempt.close()
        await context.tunnels.close()
        health.close()
        log.info("Agent stopped. node_id=%s", context.config.node_id)
    if supervisor.error is not None:
        raise supervisor.error


def _build_sync(context: AgentContext, engine_version: str) -> Sync:
    return Sync(
        context,
        lambda: find_facts(
            context.config,
            context.folder,
            context.devices_now(),
            executor=context.executor,
            engine_version=engine_version,
            fabric_key=context.keys.fabric_public_hex,
            speeds=context.speeds,
            updates=update_facts(context.folder),
            is_server=not context.why_no_serving,
            is_evaluator=not context.why_no_evaluation,
        ),
    )


def _start_loops(context: AgentContext, sync: Sync, health: Health, supervisor: LoopSupervisor) -> None:
    attempts = sync.attempts
    supervisor.start("sync", sync.loop, leaves_on=(Refused,))  # the marketplace has removed this node
    supervisor.start("watchdog", lambda: watch_leases(attempts, leaving=context.folder.leaving))
    supervisor.start("orphan containers", lambda: sweep_orphans(context, attempts))
    supervisor.start("health", health.loop)
    supervisor.start("ability to serve", lambda: keep_looking(context))
    supervisor.start("self-test", lambda: run_self_tests(context))
    supervisor.start("benchmark", lambda: _measure(context))
    supervisor.start("speeds", lambda: _measure_speeds(context), is_endless=False)


async def _measure(context: AgentContext) -> None:
    """Try until the benchmark was reported, and again when a device came that was not in it; else it is not rented."""
    while True:
        context.devices_changed.clear()
        try:
            await measure_once(context)
            give_back_memory()
            await context.devices_changed.wait()
            continue
        except (AgentError, OSError, TimeoutError, KeyError, ValueError) as error:
            log.error("The benchmark failed and is tried again: %s", error)
        await asyncio.sleep(BENCHMARK_RETRY_SECONDS)


async def _measure_speeds(context: AgentContext) -> None:
    """Once a start, beside the work; the facts that follow have it."""
    context.speeds = await measure_speeds(context.folder.root, context.client)
    context.facts_changed = True
    give_back_memory()


async def _stop_work(context: AgentContext, sync: Sync) -> None:
    """End every program, and wait a moment until the server has the last report."""
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
    ended_at = time.monotonic()
    context.wake.set()  # the answer to a request from before the end says nothing of the last report
    try:
        async with asyncio.timeout(LAST_REPORT_SECONDS_MAX):
            while context.heartbeat.asked_at < ended_at:  # noqa: ASYNC110 - the sync loop moves it
                await asyncio.sleep(LAST_REPORT_POLL_SECONDS)
    except TimeoutError:
        log.warning("The server did not answer the last report.")


def write_status(context: AgentContext, sync: Sync, supervisor: LoopSupervisor) -> None:
    """What `souk-agent status` shows of a running agent."""
    status = {
        "pid": os.getpid(),
        "version": agent_version(),
        "release": own_release(),  # shows the updater that this release has checked in
        "wanted_version": sync.updates.wanted,
        "at": datetime.now(UTC).isoformat(),
        "contact_at": context.heartbeat.contact_at.isoformat() if context.heartbeat.contact_at else None,
        "faults": context.faults,
        "node_state": sync.node_state,
        "silent_seconds": round(context.heartbeat.silent_seconds(), 1),
        "beat_seconds": context.heartbeat.seconds,
        "last_error": sync.last_error,
        "why_no_serving": context.why_no_serving,
        "tunnels": context.tunnels.status() if context.tunnels else [],
        "served": context.tunnels.served() if context.tunnels else [],
        "loops": supervisor.status(),
    }
    try:
        write_atomically(context.folder.status, json.dumps(status).encode(), mode=0o600)
    except OSError as error:
        log.error("The status could not be written: %s", error)


def _stop_on_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
