"""Simulated agents for `benchmarks/fleet.py`: each signs its requests, keeps one connection and holds one sync.

They live in a process of their own, so that what they cost is not in the marketplace's figures. The parent sends
commands over a pipe; every assignment that arrives goes back over it with the time of its arrival.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from uuid import UUID, uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from provider_agent.protocol import AttemptState, LeaseReport, Load, SyncRequest, SyncResponse, sign_request

SYNC_PATH = "/api/agent/v1/sync"
WAIT_SECONDS = 15.0
CONNECT_PARALLEL_MAX = 50
POLL_SECONDS = 0.02


# What an agent with one idle GPU says of itself at each beat.
NODE_FIGURES = {
    "cpu_percent": 3.1,
    "memory_used_mib": 9_120.0,
    "disk_free_mib": 812_113.0,
    "programs": 0.0,
    "ghosts_killed": 0.0,
    "sent_bytes_per_second": 1_310.4,
    "received_bytes_per_second": 960.2,
}
DEVICE_FIGURES = {
    "temperature_celsius": 41.0,
    "application_xids": 0.0,
    "utilization_percent": 0.0,
    "memory_used_mib": 612.0,
    "power_watts": 36.2,
    "clock_mhz": 210.0,
    "throttled_by_heat": 0.0,
    "throttled_by_power": 0.0,
    "pcie_width": 16.0,
    "memory_errors_corrected": 0.0,
    "memory_errors_uncorrected": 0.0,
}


@dataclass
class Agent:
    """One simulated node."""

    node_id: UUID
    key: Ed25519PrivateKey
    port: int
    boot_id: UUID = field(default_factory=uuid4)
    known: str = ""

    async def connect(self) -> Connected:
        """A connection for any number of syncs, one after the other."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        return Connected(self, reader, writer)


@dataclass
class Connected:
    """An agent on one of its connections."""

    agent: Agent
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def sync(self, wait_seconds: float, leases: list[LeaseReport] | None = None) -> SyncResponse:
        """One request and its answer."""
        agent = self.agent
        request = SyncRequest(
            protocol=1,
            boot_id=agent.boot_id,
            known=agent.known,
            wait_seconds=wait_seconds,
            leases=leases or [],
            load=Load(node=NODE_FIGURES, devices={f"GPU-{agent.node_id}": DEVICE_FIGURES}),
        )
        body = request.model_dump_json().encode()
        headers = sign_request(agent.key, agent.node_id, "POST", SYNC_PATH, int(time.time() * 1000), body)
        lines = [f"POST {SYNC_PATH} HTTP/1.1", "Host: sync", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        content = await self.reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"a sync was refused: {content[:300]!r}")
        return SyncResponse.model_validate_json(content)


def live(pipe: Connection, nodes: list[tuple[UUID, str]], port: int, core: int) -> None:
    """Run the agents until the parent sends "stop"; this is the process' whole life."""
    os.sched_setaffinity(0, {core})
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    agents = [Agent(node_id, Ed25519PrivateKey.from_private_bytes(bytes.fromhex(key)), port) for node_id, key in nodes]
    asyncio.run(_serve(pipe, agents))


async def _serve(pipe: Connection, agents: list[Agent]) -> None:
    slots = asyncio.Semaphore(CONNECT_PARALLEL_MAX)
    holding = [asyncio.create_task(_hold(agent, pipe, slots)) for agent in agents]
    while True:
        while not pipe.poll():
            failed = next((task for task in holding if task.done()), None)
            if failed is not None:
                failed.result()  # raises what ended it: an agent that gives up would flatter the figures
            await asyncio.sleep(POLL_SECONDS)
        command, amount = pipe.recv()
        if command == "stop":
            for task in holding:
                task.cancel()
            await asyncio.gather(*holding, return_exceptions=True)
            return
        pipe.send((command, await {"news": _news, "taken_in": _count_taken_in}[command](agents, amount)))


async def _hold(agent: Agent, pipe: Connection, slots: asyncio.Semaphore) -> None:
    """Sync after sync, as an idle agent does; its assignments are passed on."""
    await asyncio.sleep(random.uniform(0, WAIT_SECONDS))
    async with slots:
        connected = await agent.connect()
    while True:
        answer = await connected.sync(WAIT_SECONDS)
        agent.known = answer.version
        for desired in answer.desired:
            if desired.assignment is not None:
                pipe.send(("assignment", (time.perf_counter(), str(desired.lease_id))))


async def _news(agents: list[Agent], count: int) -> list[float]:
    """Seconds that syncs with something new take: each reports a lease that the marketplace must tell it to forget."""
    seconds = []
    for _ in range(count):
        agent = random.choice(agents)
        connected = await agent.connect()
        report = LeaseReport(lease_id=uuid4(), fence=1, attempt_id=uuid4(), state=AttemptState.SUCCEEDED)
        started = time.perf_counter()
        answer = await connected.sync(0, [report])
        seconds.append(time.perf_counter() - started)
        if answer.forget != [report.lease_id]:
            raise RuntimeError(f"the answer does not name the lease: {answer}")
        connected.writer.close()
    return seconds


async def _count_taken_in(agents: list[Agent], _amount: int) -> int:
    """How many agents have had an answer."""
    return sum(bool(agent.known) for agent in agents)
