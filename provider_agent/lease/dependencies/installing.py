"""Puts before a command what the job file wants before it: `setup`, and `requirements` that may be kept for later.

Where the executor can seal a folder, requirements are installed by a program of their own, under the same rules as the
command. It is the customer's time from its first line on, as the command's is: a package may run anything while it is
installed. The command's program then starts on top of what was sealed. Elsewhere the launcher installs them into the
attempt's own environment, and nothing is kept.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

from provider_agent.context import AgentContext
from provider_agent.executors.base import Exit, LaunchSpec, append_to_log
from provider_agent.lease.dependencies.environments import environments_of
from provider_agent.lease.dependencies.launcher import ENVIRONMENT_NAME, Launch, launch_command, setup_steps
from provider_agent.lease.dependencies.requirements import environment_key, install_step
from provider_agent.lease.record import LeaseRecord
from provider_agent.lease.watching import Watch
from provider_agent.lease.workfolder import load_secrets
from provider_agent.protocol import Assignment

INSTALLING_NAME = "installing"  # in the lease's folder, as long as its program is not the command's

log = logging.getLogger(__name__)


class InstallEndedError(Exception):
    """The installation failed or was stopped, and the attempt ends with it."""

    def __init__(self, ended: Exit) -> None:
        super().__init__("the installation ended the attempt")
        self.ended = ended


async def with_dependencies(context: AgentContext, record: LeaseRecord, watch: Watch, spec: LaunchSpec) -> LaunchSpec:
    """The same start, with the job file's `setup` and `requirements` before it; unchanged where it has neither.

    Raises InstallEndedError, StopRequestedError, EnvironmentRefused or what the executor raises.
    """
    assignment = record.entry.assignment
    program = assignment.program
    if not program.command or (program.setup is None and program.requirements is None):
        return spec
    steps = setup_steps(program.setup or [])
    launch = Launch(
        steps=steps,
        environment=f"{context.executor.seen_work(spec.folder)}/{ENVIRONMENT_NAME}",
        python="" if program.image else context.executor.python(),
        needs_python=program.requirements is not None,
    )
    if program.requirements is None:
        return replace(spec, argv=launch_command(launch, spec.argv))
    step = install_step(assignment, spec.work, context.executor.seen_work(spec.folder))
    key = await asyncio.to_thread(_key, context, assignment, spec, launch.python)
    if key is None:
        return replace(spec, argv=launch_command(replace(launch, steps=[step, *steps]), spec.argv))
    kept = await _find_or_install(context, record, watch, spec=spec, launch=replace(launch, steps=[step]), key=key)
    launch = replace(launch, python=str(kept / "bin" / "python"), programs=[str(kept / "bin")])
    return replace(spec, argv=launch_command(launch, spec.argv), readable=(*spec.readable, kept))


def _key(context: AgentContext, assignment: Assignment, spec: LaunchSpec, python: str) -> str | None:
    if not context.executor.can_seal:
        return None
    return environment_key(assignment, spec.work, python=python, secrets=load_secrets(spec.folder))


async def _find_or_install(
    context: AgentContext, record: LeaseRecord, watch: Watch, *, spec: LaunchSpec, launch: Launch, key: str
) -> Path:
    kept = environments_of(context.folder.root, context.folder.leases)
    async with kept.turn(key, record.stop.unless_stopped):
        if found := kept.find(key, spec.folder):
            append_to_log(spec.folder, ["requirements: installed on this node before, and used again"])
            return found
        folder = await asyncio.to_thread(kept.begin, key, spec.folder)
        try:
            await _install(context, record, watch, spec=_installing(spec, launch, folder))
            await asyncio.to_thread(kept.complete, key, folder)
        finally:
            await asyncio.to_thread(kept.abandon, folder)
    log.info("Requirements installed and kept. lease_id=%s key=%s", spec.lease_id, key)
    return folder


def _installing(spec: LaunchSpec, launch: Launch, folder: Path) -> LaunchSpec:
    argv = launch_command(replace(launch, environment=str(folder)), ["true"])
    return replace(spec, argv=argv, written=(*spec.written, folder))


async def _install(context: AgentContext, record: LeaseRecord, watch: Watch, *, spec: LaunchSpec) -> None:
    """Run the installation to its end; when this returns no process of it is left."""
    (spec.folder / INSTALLING_NAME).touch()
    handle = await context.executor.start(spec)
    record.entry.handle = handle
    record.save()
    ended = await watch.until_installed(handle)
    if ended.code != 0 or record.stop.is_set:
        record.stop_metering()
        record.entry.exit = ended.as_dict()
        record.save()
        raise InstallEndedError(ended)
    await forget_install(context, record)


async def forget_install(context: AgentContext, record: LeaseRecord) -> None:
    """End what is left of an installation, also of one that an earlier agent began; the lease has no program then."""
    executor, entry = context.executor, record.entry
    handle = await executor.adopt(entry.lease_id, record.folder, entry.handle)
    if handle is not None:
        await executor.kill(handle)
        await executor.cleanup(handle)
    entry.handle = None
    record.save()
    (record.folder / INSTALLING_NAME).unlink(missing_ok=True)
