"""Seconds of a step, as the planner reckons them from what the node's benchmark measures, beside those of the runtime.

Small models on one processor: before and after each training the program that measures a provider's node
(`runtimes/probe/measure.py`) measures matrix products and copies for a second, in the same process and with one thread;
the planner (`runtimes/plan/step_time.py`) is given the mean of the two, and nothing else of the machine. Between them
the runtime's own step runs. The figure of a case is its fastest step, as the probe takes its fastest stretch: what else
runs on the machine is no part of either. The median stands beside it.

    OMP_NUM_THREADS=1 python -m benchmarks.step_times [--write]     # five minutes; wants a free core for each rank
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import asdict
from typing import Any

from benchmarks.record import publish
from benchmarks.setups import training_steps
from benchmarks.setups.ranks import run_ranks
from benchmarks.setups.training_memory import CASES
from runtimes.plan.memory import Place
from runtimes.plan.step_time import Speed, StepTime, reckon_step
from runtimes.shapes.families import read_shape
from runtimes.train.config import parse_config

LIMIT_SECONDS = 300
PROBE_SECONDS = 1.0
WARM_STEPS = 2
STEPS = 9
WIDE: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 1024,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
}
# Those of the memory's cases whose step is more than some milliseconds, and wider ones.
NAMES = (
    "llama",
    "llama, full",
    "llama, selective",
    "llama, two passes, full",
    "llama, few tokens",
    "llama, ddp",
    "llama, lora",
    "llama, fsdp2 on two ranks",
    "qwen3",
    "gemma2",
    "gpt_neox",
    "gpt2",
)
OWN: dict[str, tuple[dict[str, Any], tuple[int, int, int], dict[str, Any], int]] = {
    "wide": (WIDE, (4, 4, 256), {}, 1),
    "wide, two ddp ranks": (WIDE, (8, 4, 256), {"strategy": "ddp"}, 2),
}
ALL = {**{name: CASES[name] for name in NAMES}, **OWN}


def main() -> None:
    """Every case in processes of its own; `--case` measures one, as a rank of torchrun."""
    if "--case" in sys.argv:
        figures = measure(sys.argv[sys.argv.index("--case") + 1])
        if os.environ["RANK"] == "0":
            print(json.dumps(figures), flush=True)
        os._exit(0)  # a thread of gloo may abort an interpreter that shuts down
    found: dict[str, dict[str, Any]] = {}
    for name in ALL:
        measured = run_ranks("benchmarks.step_times", name, ALL[name][3], seconds=LIMIT_SECONDS)
        speed = Speed(measured["flops_per_second"], measured["memory_bytes_per_second"])
        planned = predict(name, speed)
        found[name] = {
            **measured,
            "predicted_seconds": round(planned.seconds, 4),
            "predicted_over_measured": round(planned.seconds / measured["seconds"], 3),
            "parts": {key: round(value, 4) for key, value in asdict(planned).items() if isinstance(value, float)},
            "bound": planned.bound,
        }
        print(name, found[name], file=sys.stderr, flush=True)
    ratios = [each["predicted_over_measured"] for each in found.values()]
    publish(
        "step_times",
        {
            "median_ratio": round(statistics.median(ratios), 3),
            "median_error": round(statistics.median(abs(each - 1) for each in ratios), 3),
            "largest_error": round(max(abs(each - 1) for each in ratios), 3),
            "cases": found,
        },
    )


def predict(name: str, speed: Speed) -> StepTime:
    """What the planner says."""
    model, (sequences, micro, length), settings, ranks = ALL[name]
    given = {"steps": 1, "global_batch_size": sequences, "micro_batch_size": micro, "sequence_length": length}
    config = parse_config({**given, **settings, "model": "measured"})
    return reckon_step(read_shape(model), config, Place(ranks, is_gpu=False), speed)


def measure(name: str) -> dict[str, float]:
    """The device's speed and the median step of this rank."""
    import torch

    from runtimes.probe.measure import bandwidth_of, flops_of, make_matrices

    torch.set_num_threads(1)
    device = torch.device("cpu")
    model, sizes, settings, _ = ALL[name]
    training_steps.SHAPES[name], training_steps.SIZES[name] = model, sizes
    step, *_ = training_steps.our_step(name, settings)
    for _ in range(WARM_STEPS):
        step()
    matrices = make_matrices(device, torch.float32)

    def probe() -> tuple[float, float]:
        return flops_of(matrices, PROBE_SECONDS, device), bandwidth_of(device, PROBE_SECONDS)

    before, seconds = probe(), []
    for _ in range(STEPS):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    after = probe()
    return {
        "seconds": round(min(seconds), 4),
        "median_seconds": round(statistics.median(seconds), 4),
        "flops_per_second": round((before[0] + after[0]) / 2),
        "memory_bytes_per_second": round((before[1] + after[1]) / 2),
    }


if __name__ == "__main__":
    main()
