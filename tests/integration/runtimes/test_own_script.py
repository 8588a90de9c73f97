"""The example of an own program, as its job file starts it: it knows nothing of Souk, and satisfies the contract."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tests.integration.runtimes.programs import abort_on_exit

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_own_script_leaves_its_result_in_output(tmp_path: Path) -> None:
    job = yaml.safe_load((EXAMPLES / "own-script.yaml").read_text())
    (tmp_path / "input").mkdir()
    for name in job["files"]:
        shutil.copy(EXAMPLES / name, tmp_path / "input" / name)
    assert "souk" not in (EXAMPLES / "own_script.py").read_text().lower()
    torchrun, *words = shlex.split(job["command"])
    assert torchrun == "torchrun"
    ended = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": abort_on_exit(tmp_path / "hook")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "step 60/60 loss" in ended.stdout
    metrics = json.loads((tmp_path / "output" / "metrics.json").read_text())
    assert metrics["ranks"] == 2
    assert metrics["loss"] < 1.0  # it began at about ln 10 = 2.3
    assert (tmp_path / "output" / "model.pt").stat().st_size > 100_000
