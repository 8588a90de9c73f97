"""Each executor in turn; Docker against a real engine that these tests start and stop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from provider_agent.executors.base import Executor
from provider_agent.executors.docker import DockerExecutor
from provider_agent.executors.process import ProcessExecutor
from tests.contracts.executors.engine import IMAGE, import_base_image, running_engine, skip_without_engine
from tests.contracts.executors.world import World, make_world


@dataclass(frozen=True)
class Setup:
    """One executor, and the image its programs run in."""

    executor: Executor
    image: str
    python: str


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """A network namespace for the engine, so that its bridges and rules are not this computer's, and what is around."""
    skip_without_engine()
    with make_world() as made:
        yield made


@pytest.fixture(scope="session")
def engine(world: World) -> Iterator[str]:
    """The address of a private container engine with the test image in it."""
    with running_engine(world) as address:
        import_base_image(address)
        yield address


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def setup(request: pytest.FixtureRequest) -> Iterator[Setup]:
    """Each executor."""
    if request.param == "process":
        yield Setup(ProcessExecutor(sys.executable), "", sys.executable)
    else:
        address = request.getfixturevalue("engine")
        executor = DockerExecutor(engine_url=address, isolation="runc")
        asyncio.run(executor.check())
        yield Setup(executor, IMAGE, "python3")
