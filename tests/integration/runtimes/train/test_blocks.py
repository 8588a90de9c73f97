"""What `activation_checkpointing` and `compile` change: time and memory, and no loss."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import ExitCode
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, finish, losses

STEPS = 3
SECONDS_MAX = 400.0  # a compiler beside other tests
UNCOMPILED = "there is no C compiler with Python's headers here"


def train(folder: Path, *, ranks: int = 1, env: dict[str, str] | None = None, **config: Any) -> tuple[Work, str]:
    work = Work(folder, ranks=ranks, env=env or {}, launched=ranks > 1)
    work.write({**MICRO_CONFIG, "steps": STEPS, "evaluate_every": 0, "sample_every": -1, **config})
    code, output = finish(work.start(), seconds=SECONDS_MAX)
    assert code == ExitCode.OK, output
    return work, output


def test_losses_are_the_same_whatever_is_computed_anew_or_compiled(tmp_path: Path) -> None:
    if not shutil.which("g++"):
        pytest.skip("g++ is not here, which compiled blocks need")
    plain, _ = train(tmp_path / "plain")
    other, output = train(tmp_path / "other", activation_checkpointing="selective", compile=True)
    assert UNCOMPILED not in output
    assert any((other.root / "cache" / "inductor").rglob("*.so")), "what was compiled is kept in the folder of the work"
    assert losses(other) == pytest.approx(losses(plain), rel=1e-5)


def test_ranks_that_compute_anew_have_the_losses_of_those_that_keep(tmp_path: Path) -> None:
    plain, _ = train(tmp_path / "plain", ranks=2, strategy="ddp")
    full, _ = train(tmp_path / "full", ranks=2, strategy="ddp", activation_checkpointing="full")
    assert losses(full) == losses(plain)


def test_training_without_a_compiler_says_so_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    _, output = train(tmp_path / "work", env={"PATH": str(path), "CC": "", "CXX": ""}, compile=True)
    assert UNCOMPILED in output
