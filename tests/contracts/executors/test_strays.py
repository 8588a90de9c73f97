"""A program that no agent looks after any more: every executor finds it by its owner's folder, and ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from provider_agent.executors.base import Executor, LaunchSpec
from provider_agent.executors.docker import DockerExecutor
from provider_agent.executors.process import ProcessExecutor
from tests.contracts.executors.conftest import Setup

SECONDS_MAX = 20.0
SLEEP = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
def spec(setup: Setup, tmp_path: Path) -> LaunchSpec:
    """A program that would run for long, not started."""
    lease_id = uuid4()
    folder = tmp_path / "leases" / str(lease_id)
    (folder / "work").mkdir(parents=True)
    environment = {"LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    return LaunchSpec(lease_id, folder, [setup.python, "-c", SLEEP], environment, image=setup.image)


@pytest.fixture
def next_agent(setup: Setup) -> Iterator[Executor]:
    """The executor of the agent that comes after, which knows nothing."""
    if isinstance(setup.executor, DockerExecutor):
        executor: Executor = DockerExecutor(engine_url=setup.executor.engine_url)
    else:
        executor = ProcessExecutor(setup.python)
    yield executor
    asyncio.run(executor.close())


def test_stray_is_found_by_the_next_agent_alone_and_killed(
    setup: Setup, spec: LaunchSpec, next_agent: Executor, tmp_path: Path
) -> None:
    handle = asyncio.run(setup.executor.start(spec))
    leases = spec.folder.parent
    assert asyncio.run(setup.executor.find_strays(leases)) == [], "who started it looks after it"
    assert asyncio.run(next_agent.find_strays(tmp_path / "others")) == [], "another agent's are not ours"
    assert asyncio.run(next_agent.find_strays(leases)) == [spec.lease_id]
    asyncio.run(next_agent.kill_stray(spec.lease_id))
    asyncio.run(next_agent.kill_stray(spec.lease_id))  # repeating it changes nothing
    assert asyncio.run(next_agent.find_strays(leases)) == []
    until = time.monotonic() + SECONDS_MAX
    while any(str(spec.lease_id) in " ".join(_command(process)) for process in psutil.process_iter()):
        assert time.monotonic() < until, "it still runs"
        time.sleep(0.1)
    asyncio.run(setup.executor.cleanup(handle))


def test_adopted_program_is_no_stray(setup: Setup, spec: LaunchSpec, next_agent: Executor) -> None:
    handle = asyncio.run(setup.executor.start(spec))
    assert asyncio.run(next_agent.adopt(spec.lease_id, spec.folder, handle)) is not None
    assert asyncio.run(next_agent.find_strays(spec.folder.parent)) == []
    asyncio.run(next_agent.kill(handle))
    asyncio.run(next_agent.cleanup(handle))
    asyncio.run(setup.executor.cleanup(handle))


def _command(process: psutil.Process) -> list[str]:
    try:
        return [] if process.status() == psutil.STATUS_ZOMBIE else process.cmdline()
    except psutil.Error:
        return []
