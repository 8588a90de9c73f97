"""A trace is written wherever a training ends, says how many steps it has, and leaves nothing in the work folder."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runtimes.train.callbacks import profile
from runtimes.train.callbacks.profile import StepProfiler
from runtimes.train.config import Profile


def run(root: Path, *, steps: int, first: int = 2, count: int = 5) -> Path:
    """A training that ends by itself after so many steps; the trace's path."""
    ranks: Any = SimpleNamespace(rank=0, is_leader=True, device=torch.device("cpu"))
    container: Any = SimpleNamespace(work_dir=root / "work", output_dir=root / "output")
    profiler = StepProfiler(Profile(first_step=first, steps=count), ranks, container, passes=1)
    for number in range(1, steps + 1):
        profiler.before_step(number)
        torch.ones(3, 3).matmul(torch.ones(3, 3))
        profiler.after_step(number, is_last=False)
    profiler.close()
    assert not list((root / "work").rglob("*.json"))
    return root / "output" / "profile" / "rank-00000.json.gz"


@pytest.mark.parametrize(("steps", "traced"), [(4, 3), (6, 5), (9, 5)])
def test_trace_has_the_steps_that_the_log_says(
    steps: int, traced: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with gzip.open(run(tmp_path, steps=steps)) as file:
        events = json.load(file)["traceEvents"]
    assert sum(event.get("name") == "aten::matmul" for event in events) == traced
    assert f"profile: {traced} steps are traced in" in capsys.readouterr().out


def test_training_that_ends_before_the_traced_steps_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run(tmp_path, steps=1).exists()
    assert "profile: no step was traced: the training ended before step 2" in capsys.readouterr().out


@pytest.mark.parametrize("limit", ["TRACE_BYTES_MAX", "PACKED_BYTES_MAX"])
def test_trace_that_is_too_large_is_left_out(
    limit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, limit, 10)
    assert not run(tmp_path, steps=4).exists()
    assert "is left out" in capsys.readouterr().out
