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

MOMENTS = ("ready", "start", "block", "kill", "cleanup")
WHOLE = ["ready", "start", "kill", "cleanup"]


class Stepwise:
    """Says what is done to its one program, and does each step only when the test lets it."""

    def __init__(self, *, fails_at: str = "") -> None:
        self.done: list[str] = []
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.may_go_on = asyncio.Semaphore(0)
        self._fails_at = fails_at

    async def ready(self, spec: LaunchSpec, report_event: Any) -> None:
        await self._step("ready")

    async def start(self, spec: LaunchSpec) -> Handle:
        await self._step("start")
        return {"lease_id": str(spec.lease_id)}

    async def kill(self, handle: Handle) -> None:
        await self._step("kill")

    async def cleanup(self, handle: Handle) -> None:
        await self._step("cleanup")

    async def _step(self, name: str) -> None:
        self.begun.put_nowait(name)
        await self.may_go_on.acquire()
        self.done.append(name)
        if name == self._fails_at:
            raise ExecutorFailed(f"the engine did not {name}")


def spec_in(folder: Path) -> LaunchSpec:
    return LaunchSpec(lease_id=uuid4(), folder=folder / "lease", argv=["true"], env={})


async def use(executor: Stepwise, spec: LaunchSpec) -> None:
    async with run_program(cast("Executor", executor), spec):
        await executor._step("block")


async def cancelled_at(moment: str, times: int, executor: Stepwise, spec: LaunchSpec) -> list[str]:
    """What was done of a program whose caller is cancelled at this moment."""
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


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("moment", MOMENTS[1:])
def test_whenever_it_is_cancelled_nothing_of_it_is_left(tmp_path: Path, moment: str, times: int) -> None:
    assert asyncio.run(cancelled_at(moment, times, Stepwise(), spec_in(tmp_path))) == WHOLE


def test_nobody_waits_for_an_image_that_is_not_wanted_any_more(tmp_path: Path) -> None:
    assert asyncio.run(cancelled_at("ready", 1, Stepwise(), spec_in(tmp_path))) == []


@pytest.mark.parametrize("fails_at", ["kill", "cleanup"])
@pytest.mark.parametrize("moment", ["block", "kill", "cleanup"])
def test_an_engine_that_fails_keeps_no_caller_from_being_cancelled(tmp_path: Path, moment: str, fails_at: str) -> None:
    assert asyncio.run(cancelled_at(moment, 1, Stepwise(fails_at=fails_at), spec_in(tmp_path))) == WHOLE


@pytest.mark.parametrize("fails_at", ["ready", "start"])
def test_what_does_not_start_leaves_no_folder_and_says_why(tmp_path: Path, fails_at: str) -> None:
    async def scene() -> tuple[str, bool]:
        executor, spec = Stepwise(fails_at=fails_at), spec_in(tmp_path)
        for _ in MOMENTS:
            executor.may_go_on.release()
        with pytest.raises(ExecutorFailed, match=f"did not {fails_at}"):
            await use(executor, spec)
        return executor.done[-1], spec.folder.exists()

    assert asyncio.run(scene()) == (fails_at, False)
