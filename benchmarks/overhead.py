"""What Souk adds to a training: steady step time, and seconds to the first step, over bare torchrun.

Goals: steps within 2 %; the first step under 3 s later, on a warm node. Bare and Souk take turns in one run on one
machine, with the marketplace up all the time, so that both have the same neighbours; the rounds' medians are compared.

    python -m benchmarks.overhead [--rounds 5] [--steps 80] [--write]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record import publish
from examples.market import Market, MarketError, NodeOptions
from jobs.client.sdk import Souk
from runtimes.contract import Env

WARM_STEPS = 20  # left out of the steady figure
JOB_SECONDS_MAX = 300
POLL_SECONDS = 5  # nobody should watch so closely that the watching is measured
TRAIN: dict[str, Any] = {
    "model": "tiny-llama",
    "data": ["python-docs"],
    "sequence_length": 128,
    "global_batch_size": 16,
    "evaluate_every": 0,
    "sample_every": -1,
    "seed": 1,
}


def main() -> None:
    """Alternate, then compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=80)
    arguments, _ = parser.parse_known_args()
    bare: list[tuple[float, float]] = []
    souk: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="souk-overhead-", dir="/tmp") as name, Market(Path(name)) as market:
        market.add_node("node", price="0.50", node=NodeOptions(cores=""))
        with market.customer("alice") as alice:
            run_under_souk(alice, arguments.steps)  # warms the node: files in the page cache, compiled bytecode
            for number in range(arguments.rounds):
                bare.append(run_bare(Path(name) / "bare", arguments.steps))
                souk.append(run_under_souk(alice, arguments.steps))
                print(f"round {number + 1}: bare {bare[-1]}, souk {souk[-1]} (step s, first step s)", file=sys.stderr)
    publish("overhead", figures(bare, souk, arguments.steps))


def figures(bare: list[tuple[float, float]], souk: list[tuple[float, float]], steps: int) -> dict[str, Any]:
    """Medians, and the median of the rounds' ratios and differences: a drifting machine drifts for both."""
    ratios = [under[0] / alone[0] for alone, under in zip(bare, souk, strict=True)]
    added = [under[1] - alone[1] for alone, under in zip(bare, souk, strict=True)]
    return {
        "rounds": len(bare),
        "steps": steps,
        "bare_step_ms": round(1000 * statistics.median(step for step, _ in bare), 2),
        "souk_step_ms": round(1000 * statistics.median(step for step, _ in souk), 2),
        "step_overhead_percent": round(100 * (statistics.median(ratios) - 1), 2),
        "step_overhead_percent_range": [round(100 * (min(ratios) - 1), 2), round(100 * (max(ratios) - 1), 2)],
        "bare_first_step_s": round(statistics.median(first for _, first in bare), 2),
        "souk_first_step_s": round(statistics.median(first for _, first in souk), 2),
        "first_step_added_s": round(statistics.median(added), 2),
        "first_step_added_s_range": [round(min(added), 2), round(max(added), 2)],
    }


def run_bare(folder: Path, steps: int) -> tuple[float, float]:
    """The same program under bare torchrun: (median step seconds, seconds from start to the first step)."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "output").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**TRAIN, "steps": steps}))
    events = folder / "events.jsonl"
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        Env.CONFIG: str(folder / "config.json"),
        Env.EVENTS: str(events),
        Env.WORK_DIR: str(folder),
        Env.OUTPUT_DIR: str(folder / "output"),
        Env.CHECKPOINT_DIR: str(folder / "checkpoint"),
        Env.DEVICE_KIND: "cpu",
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    started = time.time()
    with (folder / "log").open("w") as log:
        subprocess.run([*command, "-m", "runtimes.train"], env=env, check=True, stdout=log, stderr=log)
    return measure(events.read_text(), started)


def run_under_souk(alice: Souk, steps: int) -> tuple[float, float]:
    """The same training as a job; the clock starts when the confirmed launch is sent."""
    spec = {
        "kind": "train",
        "name": "overhead",
        "resources": {"gpus": 2, "kind": "any", "isolation": "none"},
        "work": {"steps": steps},
        "budget": {"max_total": "1.00"},
        "checkpoint": {"every": "1h"},
        "train": TRAIN,
    }
    quote = alice.quote(spec)
    if quote.quote_id is None:
        raise MarketError(f"nothing fits: {quote.plan.exclusions}")
    started = time.time()
    job = alice.submit(spec, quote.quote_id)
    while (view := alice.job(job.job_id)).state not in {"completed", "failed", "cancelled"}:
        if time.time() - started > JOB_SECONDS_MAX:
            raise MarketError(f"the job is {view.state} after {JOB_SECONDS_MAX} s")
        time.sleep(POLL_SECONDS)
    if view.state != "completed":
        raise MarketError(f"the job {view.state}: {view.message}")
    return measure(alice.stream(job.job_id, "events").text, started)


def measure(events: str, started: float) -> tuple[float, float]:
    """(median seconds of a steady step, seconds from `started` to the end of the first step) of an event stream."""
    steps = [event for line in events.splitlines() if (event := json.loads(line))["event"] == "step"]
    return statistics.median(event["seconds"] for event in steps[WARM_STEPS:]), steps[0]["at"] - started


if __name__ == "__main__":
    main()
