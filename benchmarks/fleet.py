"""How many nodes a marketplace holds: simulated agents speak the real protocol to a real `souk up`.

Everything of the marketplace (PostgreSQL, Redis, web, sync, worker, beat) is pinned to one core, the agents to another.
Each agent holds one sync of 15 s at a time, as an idle node does. For each size of the fleet:

    all_back_s  until every node, of agents that begin within 15 s of each other, has been taken in and waits
    held        processor time and memory of the marketplace while everybody waits
    news        from the send of a sync that says something new to its answer, one at a time
    assignment  from the send of a confirmed launch (POST /jobs) to the signed assignment in the agent's hands

    python -m benchmarks.fleet [--nodes 100 1000 10000] [--seconds 30] [--write]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.record import publish
from benchmarks.setups import fleet_agents
from examples.market import Market, MarketError, Party
from jobs.client.sdk import Souk

NODES = (100, 1_000, 10_000)
SERVER_CORE, AGENTS_CORE = 0, 1
CONNECT_SECONDS_MAX = 600
CALM_SECONDS = 2 * fleet_agents.WAIT_SECONDS  # after everybody was taken in: what is measured is the usual
NEWS, LAUNCHES = 300, 30
ANSWER_SECONDS_MAX = 120
PERCENTILE = 0.99
SPAWN = multiprocessing.get_context("spawn")
SPEC: dict[str, Any] = {
    "kind": "train",
    "name": "fleet",
    "resources": {"gpus": 1, "kind": "any", "isolation": "none"},
    "work": {"steps": 10},
    "budget": {"max_total": "0.10"},
    "train": {"model": "tiny-llama", "data": "python-docs"},
}


def main() -> None:
    """One marketplace a size; publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=list(NODES))
    parser.add_argument("--seconds", type=float, default=30, help="how long the waiting fleet is watched")
    arguments, _ = parser.parse_known_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    figures: dict[str, Any] = {"news": NEWS, "launches": LAUNCHES, "sizes": {}}
    # Each size in a process of its own: a process can be attached to one marketplace only.
    for count in arguments.nodes:
        print(f"{count} nodes", file=sys.stderr)
        with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
            figures["sizes"][str(count)] = pool.submit(measure, count, arguments.seconds).result()
        print(figures["sizes"][str(count)], file=sys.stderr)
    publish("fleet", figures)


def measure(count: int, seconds: float) -> dict[str, float]:
    """All figures of one size."""
    os.sched_setaffinity(0, {SERVER_CORE})  # what is started from here inherits it
    with tempfile.TemporaryDirectory(prefix="souk-fleet-", dir="/tmp") as name, Market(Path(name)) as market:
        alice = market.sign_up("alice")
        market.deposit(alice, "100.00")
        nodes = make_nodes(count, Path(market.operator["data"]))
        sync_port = int(market.operator["sync_url"].rsplit(":", 1)[1].split("/")[0])
        with agents(nodes, sync_port) as pipe:
            figures = {"all_back_s": wait_for_all(count, pipe)}
            time.sleep(CALM_SECONDS)
            figures |= watch(market, seconds)
            figures |= latencies("news", ask(pipe, "news", NEWS))
            figures |= latencies("assignment", launch_all(market, alice, pipe))
            pipe.send(("stop", 0))
    return figures


def make_nodes(count: int, data: Path) -> list[tuple[UUID, str]]:
    """As many measured nodes of one device, each with an offer, straight into the marketplace's database."""
    from marketplace.config.embedded.attach import attach

    attach(data)
    os.environ["DJANGO_SETTINGS_MODULE"] = "marketplace.config.settings"
    import django

    django.setup()
    from django.utils import timezone

    from marketplace.accounts.models import Organisation
    from marketplace.nodes.device_checks.demands import INTERVAL_SECONDS
    from marketplace.nodes.models import Device, Node, Offer, Provider

    owner = Organisation.objects.create(name="fleet")
    provider = Provider.objects.create(organisation=owner, display_name="fleet")
    keys = [Ed25519PrivateKey.generate() for _ in range(count)]
    now = timezone.now()
    nodes = [
        Node(
            provider=provider,
            name=f"node-{index}",
            transport_public_key=key.public_key().public_bytes_raw().hex(),
            receipt_address=f"0x{index:040x}",
            executor="process",
            agent_version="1",
            protocol=1,
            memory_mib=65_536,
            cpu_count=8,
            last_seen_at=now,
            measured_at=now,
            # As in a fleet that has stood for a while: checks come one by one, not all in the first minutes.
            next_check_at=now + random.random() * timedelta(seconds=INTERVAL_SECONDS),
        )
        for index, key in enumerate(keys)
    ]
    Node.objects.bulk_create(nodes, batch_size=1000)
    Node.objects.filter(provider=provider).update(state="online")
    flops = {"float32": 1e13, "bfloat16": 1e14}
    Device.objects.bulk_create(
        (
            Device(
                node=node,
                uuid=f"GPU-{node.pk}",
                index=0,
                kind="gpu",
                model="NVIDIA L40S",
                memory_mib=46_068,
                flops_per_second=flops,
            )
            for node in nodes
        ),
        batch_size=1000,
    )
    Offer.objects.bulk_create(
        (Offer(node=node, price_usd_micros_per_device_hour=500_000 + 10 * i) for i, node in enumerate(nodes)),
        batch_size=1000,
    )
    return [(node.pk, key.private_bytes_raw().hex()) for node, key in zip(nodes, keys, strict=True)]


@contextmanager
def agents(nodes: list[tuple[UUID, str]], sync_port: int) -> Iterator[Connection]:
    """The simulated agents in a process of their own; yields the pipe to them."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=fleet_agents.live, args=(theirs, nodes, sync_port, AGENTS_CORE))
    process.start()
    theirs.close()
    try:
        yield ours
        process.join(20)
    finally:
        process.kill()
        process.join()


def wait_for_all(count: int, pipe: Connection) -> float:
    """Seconds until so many nodes were answered."""
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < CONNECT_SECONDS_MAX:
        if ask(pipe, "taken_in", 0) == count:
            return round(elapsed, 1)
        time.sleep(0.5)
    raise MarketError(f"not all of {count} nodes were answered within {CONNECT_SECONDS_MAX} s")


def watch(market: Market, seconds: float) -> dict[str, float]:
    """Processor time and memory of every process of the marketplace, while the fleet waits."""
    up = psutil.Process(market.processes.pid_of("souk up"))
    processes = [up, *up.children(recursive=True)]
    sync = psutil.Process(market.operator["pids"]["sync"])
    before, sync_before, started = sum(map(cpu_seconds, processes)), cpu_seconds(sync), time.perf_counter()
    time.sleep(seconds)
    elapsed = time.perf_counter() - started
    return {
        "held_cpu_percent": round(100 * (sum(map(cpu_seconds, processes)) - before) / elapsed, 1),
        "held_sync_cpu_percent": round(100 * (cpu_seconds(sync) - sync_before) / elapsed, 1),
        "held_sync_memory_mib": round(sync.memory_info().rss / 2**20),
    }


def launch_all(market: Market, alice: Party, pipe: Connection) -> list[float]:
    """Seconds from each confirmed launch to its assignment at an agent, one after the other."""
    seconds, seen = [], set()
    with Souk(market.server, alice.key) as souk:
        for _ in range(LAUNCHES):
            quote = souk.quote(SPEC)
            if quote.quote_id is None:
                raise MarketError(f"nothing fits: {quote.plan.exclusions}")
            started = time.perf_counter()
            job = souk.submit(SPEC, quote.quote_id)
            arrived_at, lease_id = next(news for news in assignments(pipe) if news[1] not in seen)
            seen.add(lease_id)
            seconds.append(arrived_at - started)
            souk.cancel(job.job_id)
    return seconds


def assignments(pipe: Connection) -> Iterator[tuple[float, str]]:
    """Assignments as they arrive at agents: when, and of which lease."""
    while pipe.poll(ANSWER_SECONDS_MAX):
        kind, news = pipe.recv()
        if kind == "assignment":
            yield news
    raise MarketError(f"no agent was given the job within {ANSWER_SECONDS_MAX} s")


def ask(pipe: Connection, command: str, amount: int) -> Any:
    """Have the agents do something; returns what they measured."""
    pipe.send((command, amount))
    while pipe.poll(ANSWER_SECONDS_MAX):
        kind, answer = pipe.recv()
        if kind == command:
            return answer
    raise MarketError(f"the agents did not finish `{command}` within {ANSWER_SECONDS_MAX} s")


def latencies(name: str, seconds: list[float]) -> dict[str, float]:
    """Median and 99th percentile in milliseconds."""
    worst = sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * PERCENTILE))]
    return {f"{name}_p50_ms": round(1000 * statistics.median(seconds), 1), f"{name}_p99_ms": round(1000 * worst, 1)}


def cpu_seconds(process: psutil.Process) -> float:
    """Processor time that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
