"""One case of a benchmark in new processes, one a rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def run_ranks(module: str, name: str, ranks: int, *options: str, seconds: float) -> dict[str, Any]:
    """The line of JSON that the first rank of `python -m module --case name` printed last; raises SystemExit."""
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [*launched, "-m", module, *options, "--case", name],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures
