"""What a check costs: the server, the node, the wire; and how often a relay is found, by the round trip that it adds.

The server's part is proofs.py with numpy on one core. The node's is the real chain and the real filling on one core.
The relay is a simulation around the real reading of memory and the real judgement: a way of 40 ms and its jitter
(exponential, mean 5 ms) are drawn, the added round trip is a constant; the relay answers empty steps itself.

    python -m benchmarks.verification [--trials 40] [--write]
"""

from __future__ import annotations

import argparse
import base64
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.record import publish
from benchmarks.setups.database import environment

ADDED_MS = (0, 100, 200, 300, 400, 500, 600, 800)
WAY_SECONDS, JITTER_SECONDS = 0.04, 0.005
STEPS = 3  # of each kind
GPU_ROUNDS = (
    2  # on a processor a round of the GPU's size takes a second or more; what it costs to check does not change
)
REPEATS = 5
PROBE_SECONDS = 2.0
MODEL = {"cpu": "a processor share", "gpu": "a GPU"}


def main() -> None:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40)
    arguments, _ = parser.parse_known_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="souk-verification-") as name:
        os.environ.update(environment("postgresql://nobody@127.0.0.1:1/none", Path(name)))
        import django

        django.setup()
        import torch

        torch.set_num_threads(1)
        figures = measure(arguments.trials)
    publish("verification", figures)


def measure(trials: int) -> dict[str, Any]:
    """All figures."""
    flops, bandwidth = probe()
    figures: dict[str, Any] = {"probe_gflops_per_s": round(flops / 1e9, 1)}
    for kind in ("cpu", "gpu"):
        figures |= {f"{kind}_{name}": value for name, value in of_kind(kind, flops, bandwidth).items()}
    return figures | relays(trials, flops, bandwidth)


def probe() -> tuple[float, float]:
    """FLOP/s in float32 and bytes a second, as runtimes/probe measures them."""
    import torch

    from runtimes.probe.measure import bandwidth_of, flops_of, make_matrices

    device = torch.device("cpu")
    pair = make_matrices(device, torch.float32)
    return flops_of(pair, PROBE_SECONDS, device), bandwidth_of(device, PROBE_SECONDS)


def of_kind(kind: str, flops: float, bandwidth: float) -> dict[str, Any]:
    """One device of that kind: what its check costs the server and the wire, and a processor share itself."""
    import torch

    from marketplace.nodes.device_challenges.calibration import DevicePlan
    from marketplace.nodes.device_challenges.proofs import ChainPlan, Revealed, find_fault, find_wrong_blocks
    from runtimes.probe.challenge.chain import Chain

    plan = plan_of(kind, flops, bandwidth)
    rounds = plan.rounds if kind == "cpu" else GPU_ROUNDS
    chain = Chain(plan.seed, size=plan.size, grid=plan.grid, rounds=rounds, device=torch.device("cpu"))
    chain_seconds = seconds_of(chain.run)
    shown = chain.reveal(rounds, 0)
    revealed = Revealed(**{name: base64.b64decode(text) for name, text in shown.items()})
    part = ChainPlan(plan.seed, plan.size, plan.grid, rounds)

    def check_block() -> None:
        if fault := find_fault(part, chain.roots, rounds, 0, revealed):
            raise SystemExit(fault)

    def make_blocks() -> None:
        sums = bytes(4 * plan.memory_blocks)
        picked = [random.randrange(plan.memory_blocks) for _ in range(4)]
        find_wrong_blocks(
            plan.seed, "key", sums, picked, block_words=plan.memory_block_words, passes=plan.memory_passes
        )

    block_ms = 1000 * statistics.median(seconds_of(check_block) for _ in range(REPEATS))
    memory_ms = 1000 * statistics.median(seconds_of(make_blocks) for _ in range(REPEATS))
    text = sum(map(len, shown.values())) * plan.openings + 64 * plan.rounds
    text += STEPS * len(base64.b64encode(bytes(4 * plan.memory_blocks)))
    found = {
        "block_ms": round(block_ms, 1),
        "server_ms": round(plan.openings * block_ms + STEPS * memory_ms),
        "wire_mib": round(text / 2**20, 2),
        "size": plan.size,
        "rounds": plan.rounds,
    }
    return found | (node_side(plan, chain_seconds, flops) if isinstance(plan, DevicePlan) and kind == "cpu" else {})


def node_side(plan: Any, chain_seconds: float, flops: float) -> dict[str, Any]:
    """What a processor share computes, and how much faster it reads than it makes memory."""
    fill_seconds, filling = fill(plan)
    read_seconds = min(seconds_of(lambda: filling.read("key")) for _ in range(REPEATS))
    return {
        "chain_s": round(chain_seconds, 2),
        "reach": round(plan.flops / chain_seconds / flops, 2),
        "fill_s": round(fill_seconds, 2),
        "read_s": round(read_seconds, 3),
        "memory_mib": plan.memory_blocks * plan.memory_block_words * 4 // 2**20,
    }


def relays(trials: int, flops: float, bandwidth: float) -> dict[str, Any]:
    """Of `trials` checks, the share in which a relay is found, for each round trip that it adds."""
    from marketplace.nodes.device_checks.findings import seconds_to_read

    plan = plan_of("cpu", flops, bandwidth)
    _, filling = fill(plan)

    def is_found(added_seconds: float) -> bool:
        steps = []
        for number in range(STEPS):
            steps.append({"key": "", "seconds": way()})
            read = seconds_of(lambda number=number: filling.read(f"key {number}"))  # type: ignore[misc]
            steps.append({"key": "k", "seconds": way() + added_seconds + read})
        return seconds_to_read(steps) > float(plan.recall_seconds_max)

    found = {str(added): sum(is_found(added / 1000) for _ in range(trials)) / trials for added in ADDED_MS}
    return {
        "relay_found_by_added_ms": found,
        "relay_trials": trials,
        "recall_ms_max": round(plan.recall_seconds_max * 1000),
    }


def plan_of(kind: str, flops: float, bandwidth: float) -> Any:
    """The work of one device: a share of this processor, or an 80 GB GPU, of which the server's part is measured."""
    from marketplace.nodes.device_challenges.calibration import plan_for
    from marketplace.nodes.models import Device

    is_cpu = kind == "cpu"
    device = Device(
        kind=kind,
        model=MODEL[kind],
        memory_mib=8192 if is_cpu else 81_920,
        claimed_flops_per_second={"float32": flops if is_cpu else 5e13},
        memory_bytes_per_second=bandwidth if is_cpu else 3e12,
    )
    return plan_for(device, uuid4().hex, devices=1)


def fill(plan: Any) -> tuple[float, Any]:
    """Seconds, and the filled memory."""
    import torch

    from runtimes.probe.challenge.memory import Filling

    began = time.perf_counter()
    filling = Filling(
        plan.seed,
        blocks=plan.memory_blocks,
        block_words=plan.memory_block_words,
        passes=plan.memory_passes,
        device=torch.device("cpu"),
    )
    return time.perf_counter() - began, filling


def way() -> float:
    """Seconds to a node and back, with jitter."""
    return WAY_SECONDS + random.expovariate(1 / JITTER_SECONDS)


def seconds_of(call: Callable[[], object]) -> float:
    """How long it took."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
