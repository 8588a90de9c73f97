"""Useful steps a second of a gang of three that loses nodes: with the others kept, and beginning anew as a whole.

Goals: 1.5 times the steps a second of wall time; from a kill to the next step at most 5 s (p99), on warm nodes.

One rack of five nodes, one job file, one schedule: so many steps after the first checkpoint, and again after the node
was replaced, a node is killed as by a power cut (agent, supervisor and program at once). The two kinds take turns. What
differs is the node's launcher alone: in a restart SOUK_GENERATION does not reach it, so it is one of before
generations, which the marketplace does not replace nodes for. Wall time is from the first step to the end. Where
torchft is installed it takes a turn too: without a marketplace, what is killed starts again at once, and the other two
train on without it (`setups/torchft_gang.py`).

    python -m benchmarks.goodput [--rounds 3] [--steps 150] [--kills 2] [--write]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.record import publish
from benchmarks.setups import torchft_gang
from examples.market import POLL_SECONDS, Market, MarketError, NodeOptions, Party, kill_tree, wait_for
from jobs.client.sdk import Souk
from jobs.wire import JobView

GANG_NODES, SPARE_NODES = 3, 2
NODES = tuple(f"gang-{number}" for number in range(GANG_NODES + SPARE_NODES))
SAVE_STEPS = 10
KILL_STEPS = 15  # after the first checkpoint of a start, so that each kill undoes some
JOB_SECONDS_MAX, LISTED_SECONDS = 1800, 300
ENDS = {"completed", "failed", "cancelled"}
# The interpreter of every node's programs: the file beside it decides what its launcher knows.
PYTHON = """#!/bin/sh
if [ -e '{flag}' ]; then unset SOUK_GENERATION; fi
exec '{python}' "$@"
"""
SPEC: dict[str, Any] = {
    "kind": "train",
    "name": "goodput",
    "resources": {"gpus": 1, "nodes": GANG_NODES, "kind": "any", "isolation": "none", "region": "rack"},
    "budget": {"max_total": "2.00"},
    "checkpoint": {"every": f"{SAVE_STEPS} steps", "keep": 2},
    "train": {
        "model": "tiny-llama",
        "data": ["python-docs"],
        "global_batch_size": 6,
        "sequence_length": 64,
        "log_every": 1,
        "sample_every": -1,
        "seed": 1,
    },
}


@dataclass
class Run:
    """One job: its steps a second of wall time, and how long each kill kept it from stepping."""

    steps_per_second: float
    seconds_away: list[float] = field(default_factory=list)
    attempts: int = 0


def main() -> None:
    """Alternate, then compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--kills", type=int, default=2, choices=range(1, SPARE_NODES + 1))
    arguments, _ = parser.parse_known_args()
    runs: dict[str, list[Run]] = {"kept": [], "restart": []}
    others: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="souk-goodput-", dir="/tmp") as name, Market(Path(name)) as market:
        flag = Path(name) / "restart"
        provider = add_rack(market, flag)
        with market.customer("alice") as alice:
            for number in range(arguments.rounds):
                for kind, done in runs.items():
                    flag.touch() if kind == "restart" else flag.unlink(missing_ok=True)
                    restore(market, provider)
                    done.append(run_job(market, alice, steps=arguments.steps, kills=arguments.kills))
                    print(f"round {number + 1}, {kind}: {done[-1]}", file=sys.stderr)
                if torchft_gang.is_installed():
                    others.append(run_torchft(steps=arguments.steps, kills=arguments.kills))
                    print(f"round {number + 1}, torchft: {others[-1]}", file=sys.stderr)
    publish("goodput", figures(runs, others, steps=arguments.steps, kills=arguments.kills))


def figures(runs: dict[str, list[Run]], others: list[Run], *, steps: int, kills: int) -> dict[str, Any]:
    """Medians, and the median of the rounds' ratios: a drifting machine drifts for both."""
    ratios = [
        kept.steps_per_second / restart.steps_per_second
        for kept, restart in zip(runs["kept"], runs["restart"], strict=True)
    ]
    found: dict[str, Any] = {"rounds": len(ratios), "steps": steps, "kills": kills, "nodes": GANG_NODES}
    for kind, done in runs.items():
        away = sorted(seconds for run in done for seconds in run.seconds_away)
        found |= {
            f"{kind}_steps_per_second": round(statistics.median(run.steps_per_second for run in done), 3),
            f"{kind}_kill_to_step_s": away,
            f"{kind}_kill_to_step_s_median": round(statistics.median(away), 1),
            f"{kind}_kill_to_step_s_max": max(away),
            f"{kind}_attempts": [run.attempts for run in done],
        }
    if others:
        found |= {
            "torchft_steps_per_second": round(statistics.median(run.steps_per_second for run in others), 3),
            "torchft_kill_to_step_s": sorted(seconds for run in others for seconds in run.seconds_away),
        }
    return found | {
        "kept_over_restart": round(statistics.median(ratios), 2),
        "kept_over_restart_range": [round(min(ratios), 2), round(max(ratios), 2)],
    }


def run_torchft(*, steps: int, kills: int) -> Run:
    """The same kills of torchft's replicas; a step of those that are left is a step."""
    with tempfile.TemporaryDirectory(prefix="souk-torchft-") as name:
        due = SAVE_STEPS + KILL_STEPS
        ended, killed_at = torchft_gang.run(Path(name), steps=steps, first_kill=due, kill_steps=due, kills=kills)
    away = [round(next(at for at in ended if at > killed) - killed, 1) for killed in killed_at]
    return Run(round((len(ended) - 1) / (ended[-1] - ended[0]), 3), away, attempts=1)


def add_rack(market: Market, flag: Path) -> Party:
    """Nodes that reach each other by loopback; `flag` is the file that makes their jobs restart as a whole."""
    python = flag.parent / "python"
    python.write_text(PYTHON.format(flag=flag, python=sys.executable))
    python.chmod(0o755)
    return market.add_rack(
        NODES, price="0.90", node=NodeOptions(devices=1, cores="", region="rack", runtime_python=str(python))
    )


def restore(market: Market, provider: Party) -> None:
    """Every agent runs, and every node is listed."""
    for name in NODES:
        if market.agents[name].poll() is not None:
            market.start_agent(name)
    with Souk(market.server, provider.key) as souk:
        wait_for(
            "all nodes to be listed",
            lambda: set(NODES) <= {offer.node_name for offer in souk.offers()},
            LISTED_SECONDS,
        )


def run_job(market: Market, alice: Souk, *, steps: int, kills: int) -> Run:
    """One job, in which rank 1 and then rank 2 lose their nodes."""
    spec = SPEC | {"work": {"steps": steps}}
    quote = alice.quote(spec)
    if quote.quote_id is None:
        raise MarketError(f"nothing fits: {quote.plan.exclusions}")
    job, killed_at, due = alice.submit(spec, quote.quote_id), list[float](), None

    def look() -> JobView | None:
        nonlocal due
        view = alice.job(job.job_id)
        if view.state in ENDS:
            return view
        if len(killed_at) == kills or not has_saved(alice, view, len(killed_at)):
            return None
        step = view.progress.get("step", 0)
        due = step + KILL_STEPS if due is None else due
        if step >= due:
            names = {lease.node_rank: lease.node_name for lease in view.attempts[-1].leases}
            killed_at.append(time.time())
            kill_tree(market.agents[names[1 + len(killed_at) % 2]])
            due = None
        return None

    view = wait_for("the job to end", look, JOB_SECONDS_MAX, poll_seconds_max=POLL_SECONDS)
    if view.state != "completed" or len(killed_at) < kills:
        raise MarketError(f"the job {view.state} after {len(killed_at)} kills: {view.message}")
    events = [
        json.loads(line)
        for attempt in view.attempts
        for line in alice.stream(job.job_id, "events", attempt=attempt.number).text.splitlines()
    ]
    return measure(events, killed_at, steps, attempts=len(view.attempts))


def has_saved(alice: Souk, view: JobView, kills: int) -> bool:
    """Whether the gang is whole again after the last kill, and has a complete checkpoint that it saved since then."""
    leases = sum(len(attempt.leases) for attempt in view.attempts)
    if leases != GANG_NODES + kills and len(view.attempts) != kills + 1:
        return False
    if kills and "resumed_from" not in view.progress:
        return False
    resumed = view.progress.get("resumed_from", 0)
    return any(
        artifact.kind == "checkpoint" and artifact.state == "complete" and (artifact.step or 0) > resumed
        for artifact in alice.artifacts(view.job_id)
    )


def measure(events: list[dict[str, Any]], killed_at: list[float], steps: int, *, attempts: int) -> Run:
    """Of a job's events: all steps over the time from the first one's end to the end of the last."""
    stepped_at = [event["at"] for event in events if event["event"] == "step"]
    starts, has_begun = [], False
    for event in events:
        if event["event"] == "started":
            has_begun = True
        elif event["event"] == "step" and has_begun:
            starts.append(event["at"])
            has_begun = False
    away = [round(next(at for at in starts if at > killed) - killed, 1) for killed in killed_at]
    return Run(round((steps - 1) / (stepped_at[-1] - stepped_at[0]), 3), away, attempts)


if __name__ == "__main__":
    main()
