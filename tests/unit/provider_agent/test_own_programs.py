"""A program of the agent's own is ended whole, at whatever moment its task is cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from provider_agent.errors import ExecutorFailed
from provider_agent.executors.base import Executor, Handle, LaunchSpec
from provider_agent.node.own_programs import run_program

MOMENTS = ("start", "block", "kill", "cleanup")


class Stepwise:
    """Says what is done to its one program, and does each step only when the test lets it."""

    def __init__(self, *, has_no_room: bool = False) -> None:
        self.done: list[str] = []
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.may_go_on = asyncio.Semaphore(0)
        self._has_no_room = has_no_room

    async def start(self, spec: LaunchSpec) -> Handle:
        await self._step("start")
        if self._has_no_room:
            raise ExecutorFailed("no room")
        return {"lease_id": str(spec.lease_id)}

    async def kill(self, handle: Handle) -> None:
        await self._step("kill")

    async def cleanup(self, handle: Handle) -> None:
        await self._step("cleanup")

    async def _step(self, name: str) -> None:
        self.begun.put_nowait(name)
        await self.may_go_on.acquire()
        self.done.append(name)


def spec_in(folder: Path) -> LaunchSpec:
    return LaunchSpec(lease_id=uuid4(), folder=folder / "lease", argv=["true"], env={})


async def use(executor: Stepwise, spec: LaunchSpec) -> None:
    async with run_program(cast("Executor", executor), spec):
        await executor._step("block")


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("moment", MOMENTS)
def test_whenever_it_is_cancelled_nothing_of_it_is_left(tmp_path: Path, moment: str, times: int) -> None:
    async def scene() -> list[str]:
        executor, spec = Stepwise(), spec_in(tmp_path)
        task = asyncio.create_task(use(executor, spec))
        while await executor.begun.get() != moment:
            executor.may_go_on.release()
        for _ in range(times):  # each newer answer of the marketplace withdraws it again
            task.cancel()
            await asyncio.sleep(0)
        for _ in MOMENTS:
            executor.may_go_on.release()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not spec.folder.exists()
        return [name for name in executor.done if name != "block"]

    assert asyncio.run(scene()) == ["start", "kill", "cleanup"]


def test_a_start_that_fails_leaves_no_folder_and_says_why(tmp_path: Path) -> None:
    async def scene() -> Any:
        executor, spec = Stepwise(has_no_room=True), spec_in(tmp_path)
        executor.may_go_on.release()
        with pytest.raises(ExecutorFailed, match="no room"):
            await use(executor, spec)
        return executor.done, spec.folder.exists()

    assert asyncio.run(scene()) == (["start"], False)
