"""Programs that the agent runs for itself: the probe, and a device check's challenge. Each is ended whole."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import AsyncIterator, Coroutine
from subprocess import SubprocessError

from provider_agent.errors import AgentError
from provider_agent.executors.base import Executor, Handle, LaunchSpec

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def run_program(executor: Executor, spec: LaunchSpec) -> AsyncIterator[Handle]:
    """Running while the block lasts; then its processes, its container and its folder are removed.

    Also when the caller is cancelled while it starts or ends: a program that nobody ended would keep the devices, and
    an ended container would stay until the agent's next start. What cannot be removed is logged, and swept later.
    Raises what `Executor.ready` and `Executor.start` raise.
    """
    spec.work.mkdir(parents=True)
    try:
        await executor.ready(spec, _report_nothing)  # may take as long as an image takes
    except BaseException:
        shutil.rmtree(spec.folder, ignore_errors=True)
        raise
    starting = asyncio.create_task(executor.start(spec))
    try:
        yield await asyncio.shield(starting)
    finally:
        await _finish(_end(executor, spec, starting))


def _report_nothing(_event: str, **_data: object) -> None:
    """No job has these programs among its events."""


async def _end(executor: Executor, spec: LaunchSpec, starting: asyncio.Task[Handle]) -> None:
    """Raises nothing that is expected: in its place the caller's own error, or its cancellation, would be lost."""
    try:
        handle = await starting
        for step in (executor.kill, executor.cleanup):
            try:
                await step(handle)
            except (AgentError, OSError, SubprocessError) as error:
                log.error("A program of the agent's own was not removed: %s lease_id=%s", error, spec.lease_id)
    except (AgentError, OSError) as error:
        log.info("A program of the agent's own did not start: %s", error)  # a caller that was cancelled never sees it
    finally:
        shutil.rmtree(spec.folder, ignore_errors=True)


async def _finish(work: Coroutine[None, None, None]) -> None:
    """Await it to its end, however often the caller is cancelled meanwhile; only then is the caller cancelled."""
    task = asyncio.create_task(work)
    cancelled = None
    while True:
        try:
            await asyncio.shield(task)
            break
        except asyncio.CancelledError as error:
            if task.cancelled():  # the loop itself ends
                raise
            cancelled = error
    if cancelled is not None:
        raise cancelled
