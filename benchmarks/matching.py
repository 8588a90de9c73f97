"""The matcher's speed on a synthetic fleet: one match of its own, and a batch of jobs of few classes.

Goal: one match over 10,000 nodes takes under 100 ms at the 99th percentile. Pure Python on one core; the snapshot is
in memory, reading it from the database is not in these figures.

    python -m benchmarks.matching [--nodes 10000] [--matches 100] [--write]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

from benchmarks.record import publish
from jobs.matching.demand import Demand, MatchRequest
from jobs.matching.match import match
from jobs.matching.plan import plan
from jobs.matching.snapshot import DeviceGroup, FleetSnapshot, NodeRow, snapshot_of

SEED = 20
JOBS = 1_000
CLASSES = 5
PERCENTILE = 0.99
# model, memory in MiB, bfloat16 FLOP/s, dollars an hour
MODELS = (
    ("NVIDIA H100 80GB HBM3", 81_920, 4.0e14, 2.4),
    ("NVIDIA A100-SXM4-80GB", 81_920, 2.0e14, 1.3),
    ("NVIDIA L40S", 46_080, 1.8e14, 0.9),
    ("NVIDIA GeForce RTX 4090", 24_576, 1.5e14, 0.4),
)
REGIONS = ("eu-west", "eu-north", "us-east", "us-west", "asia-south")


def main() -> None:
    """Build the fleet, measure, publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--matches", type=int, default=100)
    arguments, _ = parser.parse_known_args()
    generator = random.Random(SEED)
    fleet = make_fleet(arguments.nodes, generator)
    demands = [make_demand(generator) for _ in range(arguments.matches)]
    one = [seconds_of(partial(match, [MatchRequest("job", each)], fleet)) for each in demands]
    quote = [seconds_of(partial(plan, each, fleet)) for each in demands]
    placed, batch_seconds = measure_batch(fleet, demands[:CLASSES])
    publish(
        "matching",
        {
            "nodes": arguments.nodes,
            "matches": arguments.matches,
            "match_p50_ms": milliseconds(statistics.median(one)),
            "match_p99_ms": milliseconds(percentile(one)),
            "plan_p50_ms": milliseconds(statistics.median(quote)),
            "plan_p99_ms": milliseconds(percentile(quote)),
            "batch_jobs": JOBS,
            "batch_classes": CLASSES,
            "batch_placed": placed,
            "batch_ms": milliseconds(batch_seconds),
            "placements_per_second": round(placed / batch_seconds),
        },
    )


def make_fleet(nodes: int, generator: random.Random) -> FleetSnapshot:
    """Nodes of one to eight GPUs; a fifth offline, a third of the rest partly leased."""
    return snapshot_of((make_node(number, generator) for number in range(nodes)), taken_at=datetime.now(UTC))


def make_node(number: int, generator: random.Random) -> NodeRow:
    """One node; no two measured quite alike, as in life."""
    model, memory_mib, flops, dollars = generator.choice(MODELS)
    total = generator.choice((1, 2, 4, 8))
    free = generator.randint(0, total) if generator.random() < 0.33 else total
    measured = flops * generator.uniform(0.85, 1.05)
    return NodeRow(
        node_id=UUID(int=generator.getrandbits(128)),
        name=f"node-{number}",
        state="offline" if generator.random() < 0.2 else "online",
        provider_id=UUID(int=number // 4),
        offer_id=UUID(int=number),
        price_usd_micros=round(dollars * generator.uniform(0.7, 1.4) * 1e6),
        seconds_min=60,
        seconds_max=7 * 24 * 3600.0,
        region=generator.choice(REGIONS),
        fabric=f"rack-{number // 16}" if generator.random() < 0.5 else "",
        executor="docker",
        is_measured=True,
        failures=generator.randint(0, 3),
        successes=generator.randint(0, 60),
        groups=(
            DeviceGroup(
                kind="gpu",
                model=model,
                memory_mib=memory_mib,
                flops_per_second={"float32": measured / 8, "bfloat16": measured},
                total=total,
                free=tuple(UUID(int=(number << 8) + i) for i in range(free)),
            ),
        ),
    )


def make_demand(generator: random.Random) -> Demand:
    """A training of some size: one GPU or several, some picky, one in ten a gang."""
    return Demand(
        devices=generator.choice((1, 1, 2, 4, 8)),
        nodes=2 if generator.random() < 0.1 else 1,
        kind="gpu",
        memory_mib=generator.choice((0, 20_000, 40_000, 80_000)),
        regions=generator.choice(((), (), ("eu-west", "eu-north"))),
        work_flops=10 ** generator.uniform(17, 20),
        checkpoint_seconds=300,
        price_ceiling_usd_micros=generator.choice((None, 2_000_000, 3_000_000)),
        cap_usd_micros=10**10,
    )


def measure_batch(fleet: FleetSnapshot, classes: list[Demand]) -> tuple[int, float]:
    """How many of JOBS jobs were placed, and in how many seconds."""
    requests = [MatchRequest(str(number), classes[number % len(classes)]) for number in range(JOBS)]
    started = time.perf_counter()
    placed = len(match(requests, fleet).placements)
    return placed, time.perf_counter() - started


def seconds_of(verb: Callable[[], Any]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    verb()
    return time.perf_counter() - started


def percentile(samples: list[float]) -> float:
    """The PERCENTILE of the samples, the next one up."""
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * PERCENTILE))]


def milliseconds(seconds: float) -> float:
    """For people."""
    return round(seconds * 1000, 1)


if __name__ == "__main__":
    main()
