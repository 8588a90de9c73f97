"""What it costs to lend a machine: memory and processor of the agent at rest, against a real marketplace.

Goals: under 60 MB, under 0.1 % of one core. At rest: enrolled, measured, online, beating every 15 seconds, nothing to
run. Memory is read at the end (PSS shares what several processes map; RSS counts it whole), processor time is what the
kernel accounted to the agent and its children over the whole time.

    python -m benchmarks.lending [--minutes 5] [--write]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.record import publish
from examples.market import Market, NodeOptions

SETTLE_SECONDS = 60.0  # the start, the measuring of the machine and the first looks are no rest
MEGABYTE = 1_000_000
PERCENT = 100.0


def main() -> None:
    """One node, left alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    arguments, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="souk-lending-", dir="/tmp") as name, Market(Path(name)) as market:
        market.add_node("node", price="0.50", node=NodeOptions(cores=""))
        agent = find_agent(Path(name))
        time.sleep(SETTLE_SECONDS)
        publish("lending", measure(agent, seconds=arguments.minutes * 60))


def find_agent(folder: Path) -> psutil.Process:
    """The one agent below the market's folder, by the status that it writes."""
    (status,) = folder.rglob("status.json")
    return psutil.Process(json.loads(status.read_text())["pid"])


def measure(agent: psutil.Process, *, seconds: float) -> dict[str, float | int]:
    """Over so many seconds."""
    before, began = processor_seconds(agent), time.monotonic()
    time.sleep(seconds)
    used, passed = processor_seconds(agent) - before, time.monotonic() - began
    memory = agent.memory_full_info()
    return {
        "seconds": round(passed),
        "cpu_percent_of_a_core": round(used / passed * PERCENT, 3),
        "rss_mb": round(memory.rss / MEGABYTE, 1),
        "pss_mb": round(memory.pss / MEGABYTE, 1),
        "threads": agent.num_threads(),
        "children": len(agent.children(recursive=True)),
    }


def processor_seconds(agent: psutil.Process) -> float:
    """Of the agent, and of its children that have ended and been waited for."""
    times = agent.cpu_times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
