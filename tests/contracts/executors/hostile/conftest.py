"""One node with a real engine, Mallory's containers on it, and Alice's beside them, which must go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from provider_agent.executors.base import Exit, Handle, LaunchSpec, log_path
from provider_agent.executors.docker import DockerExecutor
from provider_agent.executors.docker.create import Protections
from provider_agent.executors.firewall import Firewall
from tests.contracts.executors.engine import IMAGE
from tests.contracts.executors.world import World
from tests.integration.provider_agent.conftest import eventually

SECONDS_MAX = 60.0
ALL_ON = Protections()
COUNT = (
    "import itertools, subprocess, time\n"
    "for count in itertools.count():\n"
    "    subprocess.run(['true'], check=True)\n"
    "    open('count', 'w').write(str(count))\n"
    "    time.sleep(0.05)\n"
)


class Running:
    """One container."""

    def __init__(self, executor: DockerExecutor, spec: LaunchSpec, handle: Handle) -> None:
        self.executor, self.spec, self.handle = executor, spec, handle

    @property
    def work(self) -> Path:
        return self.spec.work.resolve()

    def log(self) -> str:
        path = log_path(self.spec.folder)
        return path.read_text(errors="replace") if path.exists() else ""

    def poll(self) -> Exit | None:
        return asyncio.run(self.executor.poll(self.handle))

    def wait(self) -> Exit:
        """How it ended."""
        return eventually(self.poll, f"the end; its log: {self.log()[-300:]}")

    def says(self, text: str) -> None:
        """Wait until it printed `text`."""
        self.poll()  # a new executor begins to copy the output when it is asked
        eventually(lambda: text in self.log(), f"the output {text!r}")

    def stop(self) -> None:
        asyncio.run(self.executor.stop(self.handle))

    def kill(self) -> None:
        asyncio.run(self.executor.kill(self.handle))

    def remove(self) -> None:
        """What the agent does with a lease that is settled."""
        self.kill()
        asyncio.run(self.executor.cleanup(self.handle))
        asyncio.run(self.executor.remove_room(self.spec.folder))


class Node:
    """Starts containers on the engine, as the agent does."""

    def __init__(self, address: str, world: World, root: Path) -> None:
        self.address, self.world, self.root = address, world, root
        self.running: list[Running] = []

    def executor(self, protections: Protections = ALL_ON, **changes: Any) -> DockerExecutor:
        values: dict[str, Any] = {
            "engine_url": self.address,
            "isolation": "runc",
            "offers_egress": True,
            "dns": ("1.1.1.1",),
            "firewall": Firewall(prefix=self.world.inside(self.world.node)),
            "protections": protections,
        }
        made = DockerExecutor(**values | changes)
        asyncio.run(made.check())
        return made

    def start(
        self, code: str, protections: Protections = ALL_ON, *, disk_share: float = 0.0, **changes: Any
    ) -> Running:
        """Start a few lines of Python in a container."""
        executor = changes.pop("executor", None) or self.executor(protections)
        lease_id = uuid4()
        folder = self.root / str(lease_id)
        folder.mkdir(parents=True)
        if disk_share:
            asyncio.run(executor.make_room(folder, disk_share=disk_share))
        (folder / "work").mkdir(exist_ok=True)
        values: dict[str, Any] = {
            "lease_id": lease_id,
            "folder": folder,
            "argv": ["python3", "-u", "-c", code],
            "env": {"LANG": "C.UTF-8"},
            "image": IMAGE,
            "memory_mib_max": 256,
        }
        spec = LaunchSpec(**values | changes)
        started = Running(executor, spec, asyncio.run(executor.start(spec)))
        self.running.append(started)
        return started

    def assert_works(self) -> None:
        """Alice's container, started before, still counts and still starts processes."""
        count = self.running[0].work / "count"
        before = int(count.read_text() or 0)
        eventually(lambda: int(count.read_text() or 0) > before + 3, "the neighbour's going on")
        assert self.running[0].poll() is None


@pytest.fixture
def node(engine: str, world: World, tmp_path: Path) -> Iterator[Node]:
    """A node on which Alice's container runs already; everything is removed afterwards."""
    made = Node(engine, world, tmp_path / "leases")
    alice = made.start(COUNT, argv=["python3", "-c", COUNT])
    eventually((alice.work / "count").exists, "the neighbour's start")
    yield made
    for running in made.running:
        running.remove()
