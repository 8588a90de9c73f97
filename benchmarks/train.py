"""Tokens a second of a training on processors, two ranks, beside other trainers: the same model, batch and tokens.

Six million parameters (Llama's architecture), 16 sequences of 256 tokens a step in micro-batches of 4, in float32, one
thread a rank. Each case runs under torchrun in processes of its own, in turns; the figure is the median of the rounds'
ratios. DeepSpeed where it is installed.

    python -m benchmarks.train [--rounds 3] [--write]
    python -m benchmarks.train --uneven [--write]     # one rank at about half speed: measured shares beside equal ones
    python -m benchmarks.train --memory [--write]     # peak memory beside what `souk plan` says; three minutes
    python -m benchmarks.train --plans [100] [--write]    # accepted plans, run within the memory they ask for; as root
    python -m benchmarks.train --loading [--write]    # memory of two ranks that read ever larger models
    python -m benchmarks.train --saves [--write]      # what saving costs: seconds that steps wait, bytes
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.record import publish
from benchmarks.setups.ranks import run_ranks
from benchmarks.setups.training_loading import LAYERS, measure_loading, write_model
from benchmarks.setups.training_memory import CASES, measure_peak, predicted_peak
from benchmarks.setups.training_plans import run_plan, run_steps
from benchmarks.setups.training_saves import KEPT, measure_kept, measure_saves
from benchmarks.setups.training_steps import measure
from runtimes.contract import Env

RANKS = 2
SHAPE = "6m"
MODULE = "benchmarks.train"
LIMIT_SECONDS = 600
TRIES_OF_RANKS = 3  # gloo's threads give some memory back unseen, more or less of it
OURS: dict[str, dict[str, Any]] = {
    "ours, ddp": {"strategy": "ddp"},
    "ours, fsdp2": {"strategy": "fsdp2"},
    "ours, ddp, compile": {"strategy": "ddp", "compile": True},
    "ours, fsdp2, compile": {"strategy": "fsdp2", "compile": True},
}
UNEVEN: dict[str, dict[str, Any]] = {
    "uneven ranks, equal shares": {"strategy": "fsdp2"},
    "uneven ranks, measured shares": {"strategy": "fsdp2", "shares": "measured"},
}
OTHERS = ("accelerate", "bare FSDP2", "DeepSpeed")


def main() -> None:
    """Every case in turns; `--case` measures one, as a rank of torchrun."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--uneven", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--plans", type=int, nargs="?", const=100)
    parser.add_argument("--loading", action="store_true")
    parser.add_argument("--saves", action="store_true")
    arguments, _ = parser.parse_known_args()
    if arguments.memory:
        compare_memory(arguments.case)
        return
    if arguments.plans:
        try_plans(arguments.plans, arguments.case)
        return
    if arguments.loading:
        compare_loading(arguments.case)
        return
    if arguments.saves:
        compare_saves(arguments.case)
        return
    if arguments.case:
        if arguments.case in UNEVEN:
            os.sched_setaffinity(0, {int(os.environ["RANK"])})
        figures = measure(SHAPE, arguments.case, {**OURS, **UNEVEN}.get(arguments.case, {}))
        if os.environ["RANK"] == "0":
            print(json.dumps(figures), flush=True)
        os._exit(0)  # a thread of gloo may abort an interpreter that shuts down
    if arguments.uneven:
        compare_shares(arguments.rounds)
        return
    names = [*OURS, *(name for name in OTHERS if name != "DeepSpeed" or importlib.util.find_spec("deepspeed"))]
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(arguments.rounds):
        for name in names:
            speeds[name].append(run_case(name))
            print(name, speeds[name][-1], file=sys.stderr, flush=True)
    fastest = [max(each) for each in zip(*(speeds[name] for name in names if name in OTHERS), strict=True)]
    ours = [max(each) for each in zip(*(speeds[name] for name in OURS), strict=True)]
    ratios = [mine / theirs for mine, theirs in zip(ours, fastest, strict=True)]
    publish(
        "train",
        {
            "ranks": RANKS,
            "rounds": arguments.rounds,
            "tokens_per_second": {name: round(statistics.median(each)) for name, each in speeds.items()},
            "fastest_of_ours_over_fastest_of_others": round(statistics.median(ratios), 3),
            "range": [round(min(ratios), 3), round(max(ratios), 3)],
        },
    )


def compare_shares(rounds: int) -> None:
    """Each rank has a processor of its own, and on the second one's another program computes, too."""
    speeds: dict[str, list[float]] = {name: [] for name in UNEVEN}
    for _ in range(rounds):
        for name, found in speeds.items():
            found.append(run_case(name))
            print(name, found[-1], file=sys.stderr, flush=True)
    even, measured = speeds.values()
    gains = [fast / slow for fast, slow in zip(measured, even, strict=True)]
    publish(
        "train_shares",
        {
            "rounds": rounds,
            "tokens_per_second": {name: round(statistics.median(each)) for name, each in speeds.items()},
            "measured_over_equal": round(statistics.median(gains), 3),
            "range": [round(min(gains), 3), round(max(gains), 3)],
        },
    )


@contextmanager
def busy_processor(number: int) -> Iterator[None]:
    """Within it a program computes on this processor, and leaves about half of it to another one."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as program:
        os.sched_setaffinity(program.pid, {number})
        try:
            yield
        finally:
            program.kill()


def tell(figures: dict[str, Any]) -> None:
    """The first rank prints them; then this process ends, as in `main`."""
    if os.environ["RANK"] == "0":
        print(json.dumps(figures), flush=True)
    os._exit(0)


def compare_memory(case: str | None) -> None:
    """The planner's peaks beside measured ones; `case`: measure that one, in this process."""
    if case:
        tell(measure_peak(case))
    found = {}
    for name, (*_, ranks) in CASES.items():
        tries = 1 if ranks == 1 else TRIES_OF_RANKS
        measured = statistics.median(
            run_ranks(MODULE, name, ranks, "--memory", seconds=LIMIT_SECONDS)["peak_bytes"] for _ in range(tries)
        )
        found[name] = {"measured": measured, "predicted": predicted_peak(name)}
        found[name]["ratio"] = round(found[name]["predicted"] / measured, 3)
        print(name, found[name], file=sys.stderr, flush=True)
    errors = [abs(each["ratio"] - 1) for each in found.values()]
    publish(
        "train_memory",
        {
            "median_error": round(statistics.median(errors), 4),
            "largest_error": round(max(errors), 4),
            "peak_bytes": found,
        },
    )


def try_plans(count: int, case: str | None) -> None:
    """So many drawn trainings, one a processor at a time; `case`: the steps of one, in this process."""
    if case:
        run_steps(int(case))
        os._exit(0)

    def run(seed: int) -> dict[str, Any]:
        found = run_plan(MODULE, seed, seconds=LIMIT_SECONDS)
        print(found, file=sys.stderr, flush=True)
        return found

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(run, range(1, count + 1)))
    taken = [each["most_bytes"] / each["needed_bytes"] for each in found]
    publish(
        "train_plans",
        {
            "plans": count,
            "out_of_memory": sum(each["is_out"] for each in found),
            "taken_of_needed": {"median": round(statistics.median(taken), 3), "most": round(max(taken), 3)},
            "needed_bytes": sorted(each["needed_bytes"] for each in found),
        },
    )


def compare_loading(case: str | None) -> None:
    """Two ranks read models that grow; `case`: the folder of one, in this process."""
    if case:
        tell(measure_loading(case))
    rows = []
    for layers in LAYERS:
        with tempfile.TemporaryDirectory(prefix="souk-loading-", dir="/var/tmp") as folder:
            write_model(Path(folder), layers)
            rows.append(run_ranks(MODULE, folder, RANKS, "--loading", seconds=LIMIT_SECONDS))
        print(rows[-1], file=sys.stderr, flush=True)
    publish("train_loading", {"ranks": RANKS, "rows": rows})


def compare_saves(case: str | None) -> None:
    """Seconds and bytes of saves; `case`: one of those, in this process."""
    if case:
        tell(measure_kept(case) if case in KEPT else measure_saves())
    figures = {}
    for name, ranks in {"saves": RANKS, **dict.fromkeys(KEPT, 1)}.items():
        with tempfile.TemporaryDirectory(prefix="souk-saves-", dir="/var/tmp") as folder:
            os.environ[Env.WORK_DIR] = folder
            figures[name] = run_ranks(MODULE, name, ranks, "--saves", seconds=LIMIT_SECONDS)
        print(name, figures[name], file=sys.stderr, flush=True)
    publish("train_saves", figures)


def run_case(name: str) -> float:
    """Tokens a second of one case, by new processes."""
    with busy_processor(RANKS - 1) if name in UNEVEN else nullcontext():
        return float(run_ranks(MODULE, name, RANKS, seconds=LIMIT_SECONDS)["tokens_per_second"])


if __name__ == "__main__":
    main()
