"""Bob provides: his agent is a real process, the marketplace is fake_server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psutil
import pytest

from provider_agent.assembly import assemble
from provider_agent.config import AgentSettings, DataFolder
from provider_agent.context import AgentContext
from provider_agent.journal import Journal
from provider_agent.node import enrolment
from provider_agent.node.benchmark import FACT_MEASURED
from provider_agent.protocol import Assignment, GangPlace, OfferTerms, Program
from tests.integration.provider_agent.fake_server import FakeServer

SECONDS_MAX = 180.0  # a busy computer may take that long
COMMAND_SECONDS_MAX = 120  # `doctor` calls registries that do not answer here
REPOSITORY = Path(__file__).parents[3]


def eventually(condition: Callable[[], Any], what: str = "", seconds: float = SECONDS_MAX) -> Any:
    """Wait until `condition` holds; returns what it returned."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"did not happen in {seconds} s: {what or condition}")


# The very agent as it stays in memory, but that it looks at its machine more often. `start` would replace the process,
# and with it what is set here.
LOOKS_OFTEN = (
    "from provider_agent import resident; from provider_agent.node import health; "
    "health.POLL_SECONDS = 0.3; raise SystemExit(resident.main())"
)


class Bob:
    """A provider with one node, whose agent is started and killed as a process."""

    def __init__(self, server: FakeServer, data: Path) -> None:
        self.server = server
        self.data = data
        self.folder = DataFolder(data)
        self.printed = data / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.fence = 0

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one souk-agent command to its end."""
        command = [sys.executable, "-m", "provider_agent", *arguments, "--data", str(self.data)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, cwd=REPOSITORY, check=False
        )

    def enrol(self, **changes: Any) -> None:
        """Enrol with a CPU share, and count the benchmark as done."""
        values: dict[str, Any] = {
            "name": "bob-1",
            "executor": "process",
            "offer": OfferTerms(price_usd_micros_per_device_hour=1_000_000),
            "device_kind": "cpu",
            "runtime_python": sys.executable,
        }
        settings = AgentSettings(**values | changes)
        asyncio.run(enrolment.enrol(self.folder, settings, server=self.server.url, token=self.server.token))
        self.mark_measured()

    def mark_measured(self) -> None:
        """Count the benchmark as done."""
        journal = Journal(self.folder.journal)
        journal.save_fact(FACT_MEASURED, ",".join(self.devices()))
        journal.close()

    def start(self, *options: str, program: list[str] | None = None) -> None:
        """Start the agent, or `program` in its place."""
        log = self.printed.open("ab")
        self.process = subprocess.Popen(
            [*(program or [sys.executable, "-m", "provider_agent"]), "start", *options, "--data", str(self.data)],
            stdout=log,
            stderr=log,
            cwd=REPOSITORY,
            umask=0o077,  # as its unit of systemd has it
        )
        log.close()
        eventually(self.folder.status.exists, "first contact")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the agent; returns its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(30)
        self.process = None
        self.folder.status.unlink(missing_ok=True)
        return status

    def node_id(self) -> UUID:
        return UUID(json.loads(self.folder.config.read_text())["node_id"])

    def devices(self) -> list[str]:
        return [device.uuid for device in self.server.nodes[self.node_id()].facts.devices]

    def assignment(self, *command: str, **changes: Any) -> Assignment:
        """An assignment for all devices of this node, with a newer fence than the last."""
        self.fence += 1
        values: dict[str, Any] = {
            "node_id": self.node_id(),
            "lease_id": uuid4(),
            "fence": self.fence,
            "attempt_id": uuid4(),
            "attempt_number": 1,
            "job_id": uuid4(),
            "job_name": "alice-job",
            "device_uuids": self.devices(),
            "rate_usd_micros_per_hour": 3_600_000_000,
            "cap_usd_micros": 10**12,
            "program": Program(command=list(command)),
            "gang": GangPlace(),
            "seconds_max": 600,
            "stop_grace_seconds": 2,
        }
        return Assignment(**values | changes)

    def let_go(self, lease_id: UUID) -> None:
        """The program that waits for a file `go` in its working folder goes on."""
        (self.folder.lease(lease_id) / "work" / "go").touch()

    def log_text(self) -> str:
        """What the agent logged."""
        return self.printed.read_text()


def processes_of(lease_id: UUID) -> list[psutil.Process]:
    """Live processes that carry a lease's marker."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SOUK_LEASE_ID") == str(lease_id) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def python(code: str) -> list[str]:
    """An own command that runs a few lines of Python."""
    return [sys.executable, "-c", code]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A marketplace."""
    fake = FakeServer()
    fake.start()
    yield fake
    fake.stop()
    assert fake.problems == []


@pytest.fixture
def bob(server: FakeServer, tmp_path: Path) -> Iterator[Bob]:
    """A provider; whatever he left running is ended."""
    os.environ.pop("SOUK_AGENT_LOG", None)
    provider = Bob(server, tmp_path / "bob")
    yield provider
    if provider.process is not None:
        provider.process.kill()
        provider.process.wait()
    for lease_id in server.leases:
        for process in processes_of(lease_id):
            process.kill()


@pytest.fixture
def context(bob: Bob) -> Iterator[AgentContext]:
    """What the loops of Bob's agent share, without the loops."""
    bob.enrol()
    made = assemble(bob.folder)
    yield made
    asyncio.run(made.client.close())
    made.journal.close()
