"""Waiting agents against a real sync process: how fast a wake arrives, how many beats a second, what holding costs.

The sync process runs as `souk up` starts it, with the embedded PostgreSQL and Redis; the agents are simulated in this
process, on the same cores: each signs its requests, keeps one connection and holds one sync. A wake is timed from the
commit that changes the node's desired state to the answer in the agent's hands.

    python -m benchmarks.sync [--agents 500 2000] [--seconds 8] [--write]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psutil
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from benchmarks.record import publish
from provider_agent.protocol import SyncRequest, SyncResponse, sign_request

PATH = "/api/agent/v1/sync"
AGENTS = (500, 2000)
WAIT_SECONDS = 15.0
WAKES = 300
BEATING = 64  # connections that beat as fast as they are answered
READY_SECONDS = 30
PERCENTILE = 0.99


def main() -> None:
    """Start the servers, measure, stop them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, nargs="+", default=list(AGENTS))
    parser.add_argument("--seconds", type=float, default=8)
    arguments, _ = parser.parse_known_args()
    from marketplace.config.embedded import postgres, redis

    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory(prefix="souk-sync-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)  # PostgreSQL runs as another user where we run as root
        sockets = folder / "run"
        database = postgres.start(folder / "postgres", socket_folder=sockets, log=folder / "postgres.log")
        wakes = redis.start(folder / "redis", socket_folder=sockets, log=folder / "redis.log")
        try:
            os.environ.update(environment(postgres.url_for(sockets), redis.url_for(sockets), folder))
            figures = measure(arguments.agents, arguments.seconds)
        finally:
            wakes.stop()
            database.stop()
    publish("sync", figures)


def environment(database_url: str, redis_url: str, folder: Path) -> dict[str, str]:
    """What the settings ask for."""
    return {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "SOUK_SECRET_KEY": secrets.token_hex(32),
        "SOUK_SIGNING_KEY": secrets.token_hex(32),
        "SOUK_DATA": str(folder),
        "DJANGO_SETTINGS_MODULE": "marketplace.config.settings",
        "DJANGO_ALLOW_ASYNC_UNSAFE": "1",  # the simulated operator changes nodes between two awaits
    }


def measure(counts: list[int], seconds: float) -> dict[str, Any]:
    """All figures."""
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", interactive=False, verbosity=0)
    agents = [Agent(*made) for made in make_nodes(max(counts))]
    figures: dict[str, Any] = {}
    for count in counts:
        port = free_port()
        command = [sys.executable, "-m", "uvicorn", "jobs.sync.app:application", "--port", str(port)]
        command += ["--no-access-log", "--log-level", "warning", "--timeout-graceful-shutdown", "1"]
        server = subprocess.Popen(command)
        try:
            asyncio.run(hold_and_wake(figures, agents[:count], port, psutil.Process(server.pid), seconds))
        finally:
            server.terminate()
            server.wait(20)
    return figures


@dataclass
class Agent:
    """One simulated node."""

    node_id: UUID
    key: Ed25519PrivateKey
    boot_id: UUID = field(default_factory=uuid4)
    known: str = ""
    answered_at: float = 0.0
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    async def connect(self, port: int) -> None:
        """One connection for all of its syncs."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)

    async def sync(self, wait_seconds: float) -> SyncResponse:
        """One request and its answer."""
        request = SyncRequest(protocol=1, boot_id=self.boot_id, known=self.known, wait_seconds=wait_seconds)
        body = request.model_dump_json().encode()
        headers = sign_request(self.key, self.node_id, "POST", PATH, int(time.time() * 1000), body)
        lines = [f"POST {PATH} HTTP/1.1", "Host: sync", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        content = await self.reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the sync process refused: {content!r}")
        answer = SyncResponse.model_validate_json(content)
        self.known = answer.version
        return answer

    async def hold(self) -> None:
        """Sync after sync, as an idle agent does; tells when an answer brought something new."""
        await asyncio.sleep(random.uniform(0, 1))
        while True:
            before = self.known
            await self.sync(WAIT_SECONDS)
            if before and self.known != before:
                self.answered_at = time.perf_counter()
                self.answered.set()


async def hold_and_wake(
    figures: dict[str, Any], agents: list[Agent], port: int, process: psutil.Process, seconds: float
) -> None:
    """The figures of one number of agents."""
    await until_ready(port)
    for agent in agents:
        agent.known = ""
        agent.answered = asyncio.Event()
        await agent.connect(port)
    holding = [asyncio.create_task(agent.hold()) for agent in agents]
    await asyncio.sleep(WAIT_SECONDS + 2)  # every agent has been held once, so that the beats are spread
    used, started = cpu_seconds(process), time.perf_counter()
    await asyncio.sleep(seconds)
    count, elapsed = len(agents), time.perf_counter() - started
    figures[f"held_cpu_percent_{count}"] = round(100 * (cpu_seconds(process) - used) / elapsed, 1)
    figures[f"held_memory_mib_{count}"] = round(process.memory_info().rss / 2**20)
    latencies = [await wake(random.choice(agents)) for _ in range(WAKES)]
    figures[f"wake_p50_ms_{count}"] = round(1000 * statistics.median(latencies), 1)
    figures[f"wake_p99_ms_{count}"] = round(1000 * sorted(latencies)[int(WAKES * PERCENTILE)], 1)
    figures["wakes"] = WAKES
    for task in holding:
        task.cancel()
    await asyncio.gather(*holding, return_exceptions=True)
    for agent in agents:
        agent.writer.close()
    used, per_s = cpu_seconds(process), await beats(agents[:BEATING], port, seconds)
    figures[f"beats_per_s_{count}"] = round(per_s)
    figures[f"beat_cpu_ms_{count}"] = round(1000 * (cpu_seconds(process) - used) / (per_s * seconds), 2)


async def wake(agent: Agent) -> float:
    """Seconds from the commit that changes what the node should know to its answer."""
    from jobs.sync.wake import wake_nodes
    from marketplace.nodes.models import Node

    agent.answered.clear()
    node = Node.objects.get(pk=agent.node_id)
    Node.objects.filter(pk=node.pk).update(state="online" if node.state == "draining" else "draining")
    committed = time.perf_counter()
    wake_nodes([agent.node_id])
    async with asyncio.timeout(WAIT_SECONDS + 5):
        await agent.answered.wait()
    await asyncio.sleep(0.02)  # it is held again
    return agent.answered_at - committed


async def beats(agents: list[Agent], port: int, seconds: float) -> float:
    """Syncs a second of agents that ask again as soon as they are answered."""
    end = time.perf_counter() + seconds

    async def beat(agent: Agent) -> int:
        await agent.connect(port)
        count = 0
        while time.perf_counter() < end:
            await agent.sync(0)
            count += 1
        agent.writer.close()
        return count

    return sum(await asyncio.gather(*map(beat, agents))) / seconds


def cpu_seconds(process: psutil.Process) -> float:
    """Processor time that the sync process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def until_ready(port: int) -> None:
    """The process answers and hears wakes."""

    async def is_listening() -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: sync\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return b'"is_listening": true' in answer

    await retry(is_listening, READY_SECONDS)


async def retry(is_so: Callable[[], Awaitable[bool]], seconds: float) -> None:
    """Ask until it is so."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        try:
            if await is_so():
                return
        except OSError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit("the sync process did not come up")


def make_nodes(count: int) -> list[tuple[UUID, Ed25519PrivateKey]]:
    """As many enrolled nodes, online, with nothing to do."""
    from marketplace.accounts.models import Organisation
    from marketplace.nodes.models import Node, Provider

    owner = Organisation.objects.create(name="provider")
    provider = Provider.objects.create(organisation=owner, display_name="provider")
    keys = [Ed25519PrivateKey.generate() for _ in range(count)]
    nodes = [
        Node(
            provider=provider,
            name=f"node-{index}",
            state="online",
            transport_public_key=key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex(),
            receipt_address=f"0x{index:040x}",
            executor="process",
            agent_version="1",
            protocol=1,
            memory_mib=1024,
            cpu_count=1,
        )
        for index, key in enumerate(keys)
    ]
    Node.objects.bulk_create(nodes)
    return [(node.id, key) for node, key in zip(nodes, keys, strict=True)]


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
