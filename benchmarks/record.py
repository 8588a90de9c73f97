"""How a figure is kept: what was measured, on which machine, from which commit."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """The machine that makes the figures, as far as it decides them."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    memory_kib = next(
        int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(memory_kib / 1024**2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def publish(name: str, figures: dict[str, Any]) -> None:
    """Print the figures as JSON; with `--write` keep them as the committed result of this name."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--write", action="store_true", help="keep the result under benchmarks/results/")
    arguments, _ = parser.parse_known_args()
    body = {
        "name": name,
        "at": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": _commit(),
        "machine": machine(),
        "figures": figures,
    }
    text = json.dumps(body, indent=2, sort_keys=True)
    print(text)
    if arguments.write:
        (RESULTS / f"{name}.json").write_text(text + "\n")


def read(name: str) -> dict[str, Any]:
    """The committed result of this name; raises FileNotFoundError where it was never made."""
    body: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return body


def _commit() -> str:
    """With `-dirty` where what was measured is not all in that commit."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
