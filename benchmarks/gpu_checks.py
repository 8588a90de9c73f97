"""A check of a real GPU: how much quicker it is than the bounds, and how much longer making its memory anew would take.

The chain of products and the filled memory are the node's own programs, on all of the GPU's memory that a check takes;
opened blocks and a sample of the memory are verified by the server's own numpy. Needs an NVIDIA GPU; two minutes.

    python -m benchmarks.gpu_checks [--write]
"""

from __future__ import annotations

import base64
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.record import publish
from benchmarks.setups.database import environment
from benchmarks.verification import seconds_of

PROBE_SECONDS = 2.0
REPEATS = 5
SAMPLED_BLOCKS = 4


def main() -> None:
    """Measure and publish."""
    with tempfile.TemporaryDirectory(prefix="souk-gpu-checks-") as name:
        os.environ.update(environment("postgresql://nobody@127.0.0.1:1/none", Path(name)))
        import django

        django.setup()
        import torch

        if not torch.cuda.is_available():
            raise SystemExit("needs an NVIDIA GPU; torch sees none")
        torch.set_num_threads(1)
        figures = measure()
    publish("gpu_checks", figures)


def measure() -> dict[str, Any]:
    """All figures of the first GPU."""
    import torch

    from marketplace.nodes.device_challenges.calibration import plan_for
    from marketplace.nodes.models import Device

    device = torch.device("cuda", 0)
    flops, bandwidth = probe(device)
    seen = Device(
        kind="gpu",
        model=torch.cuda.get_device_name(0),
        memory_mib=torch.cuda.get_device_properties(0).total_memory // 2**20,
        claimed_flops_per_second=flops,
        memory_bytes_per_second=bandwidth,
    )
    plan = plan_for(seen, uuid4().hex, devices=1)
    return {
        "gpu": seen.model,
        "torch": torch.__version__,
        "memory_mib": seen.memory_mib,
        "probe_tflops_per_s": {dtype: round(figure / 1e12, 1) for dtype, figure in flops.items()},
        "probe_gb_per_s": round(bandwidth / 1e9),
        **of_chain(plan, device, flops["float32"]),
        **of_memory(plan, device, bandwidth),
    }


def probe(device: Any) -> tuple[dict[str, float], float]:
    """FLOP/s by dtype, and bytes a second, as runtimes/probe measures them."""
    from runtimes.probe.measure import DTYPES, bandwidth_of, flops_of, make_matrices

    flops = {}
    for dtype in DTYPES["cuda"]:
        name = str(dtype).removeprefix("torch.")
        flops[name] = flops_of(make_matrices(device, dtype), PROBE_SECONDS, device)
    return flops, bandwidth_of(device, PROBE_SECONDS)


def of_chain(plan: Any, device: Any, flops: float) -> dict[str, Any]:
    """The products: `reach` is the part of the probe's float32 figure that they show, hashing included."""
    from marketplace.nodes.device_challenges.proofs import Revealed, find_fault
    from runtimes.probe.challenge.chain import Chain

    def chain() -> Chain:
        return Chain(plan.seed, size=plan.size, grid=plan.grid, rounds=plan.rounds, device=device)

    chain().run()  # loads the kernels
    chains = [chain() for _ in range(REPEATS)]
    seconds = [seconds_of(each.run) for each in chains]
    revealed = {name: base64.b64decode(text) for name, text in chains[-1].reveal(plan.rounds, 0).items()}
    if fault := find_fault(plan.chain, chains[-1].roots, plan.rounds, 0, Revealed(**revealed)):
        raise SystemExit(f"the server found a fault in an honest chain: {fault}")
    median = statistics.median(seconds)
    return {
        "rounds": plan.rounds,
        "chain_s": round(median, 3),
        "chain_s_range": [round(min(seconds), 3), round(max(seconds), 3)],
        "chain_s_max": plan.work_seconds_max,
        "reach": round(plan.flops / median / flops, 3),
    }


def of_memory(plan: Any, device: Any, bandwidth: float) -> dict[str, Any]:
    """The memory; `memory_reach` is the part of the probe's bandwidth that reading it shows."""
    from marketplace.nodes.device_challenges.proofs import find_wrong_blocks
    from runtimes.probe.challenge.memory import Filling

    made: list[Filling] = []

    def fill() -> None:
        made.append(
            Filling(
                plan.seed,
                blocks=plan.memory_blocks,
                block_words=plan.memory_block_words,
                passes=plan.memory_passes,
                device=device,
            )
        )

    fill_seconds = seconds_of(fill)
    made[0].read("warm")
    read_seconds = statistics.median(seconds_of(lambda: made[0].read("key")) for _ in range(REPEATS))
    picked = [number * (plan.memory_blocks - 1) // (SAMPLED_BLOCKS - 1) for number in range(SAMPLED_BLOCKS)]
    wrong = find_wrong_blocks(
        plan.seed,
        "key",
        made[0].read("key"),
        picked,
        block_words=plan.memory_block_words,
        passes=plan.memory_passes,
    )
    if wrong:
        raise SystemExit(f"the server found wrong blocks in an honest memory: {wrong}")
    filled_bytes = plan.memory_blocks * plan.memory_block_words * 4
    return {
        "filled_mib": filled_bytes // 2**20,
        "fill_s": round(fill_seconds, 2),
        "read_s": round(read_seconds, 4),
        "read_s_max": plan.recall_seconds_max,
        "memory_reach": round(filled_bytes / read_seconds / bandwidth, 3),
    }


if __name__ == "__main__":
    main()
