"""Programs that the agent runs for itself: the probe, and a device check's challenge. Nothing of one is left."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Coroutine

from provider_agent.errors import AgentError
from provider_agent.executors.base import Executor, Handle, LaunchSpec


@contextlib.asynccontextmanager
async def run_program(executor: Executor, spec: LaunchSpec) -> AsyncIterator[Handle]:
    """Running while the block lasts; then its processes, its container and its folder are gone.

    Also when the caller is cancelled while it starts or ends: a program that nobody ended would keep the devices, and
    an ended container would stay until the agent's next start. Raises what starting raises.
    """
    spec.work.mkdir(parents=True)
    starting = asyncio.create_task(executor.start(spec))
    try:
        yield await asyncio.shield(starting)
    finally:
        await _finish(_end(executor, spec, starting))


async def _end(executor: Executor, spec: LaunchSpec, starting: asyncio.Task[Handle]) -> None:
    try:
        try:
            handle = await starting
        except (AgentError, OSError):
            return  # nothing was started, and the block's caller has this error
        await executor.kill(handle)
        await executor.cleanup(handle)
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
