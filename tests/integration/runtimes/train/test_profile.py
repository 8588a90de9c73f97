"""A trace of some steps of each rank, and a training that computes the same bits each time."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from runtimes.contract import Env, ExitCode, checkpoint_folder
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, losses

CONFIG: dict[str, Any] = {**MICRO_CONFIG, "steps": 8, "evaluate_every": 0, "sample_every": -1}


def train(root: Path, *, ranks: int = 1, env: dict[str, str] | None = None, **changes: Any) -> Work:
    work = Work(root, ranks=ranks, env=env or {}, launched=ranks > 1).write({**CONFIG, **changes})
    code, output = work.run()
    assert code == ExitCode.OK, output
    (root / "log").write_text(output)
    return work


def optimizer_steps(work: Work, rank: int = 0) -> int:
    """How many steps of the optimizer the trace of a rank shows."""
    with gzip.open(work.root / "output" / "profile" / f"rank-{rank:05d}.json.gz") as file:
        events = json.load(file)["traceEvents"]
    names = [str(event.get("name")) for event in events]
    return sum(name.startswith("Optimizer.step") for name in names)


def test_every_rank_has_a_trace_of_just_these_steps(tmp_path: Path) -> None:
    work = train(tmp_path / "work", ranks=2, profile={"first_step": 3, "steps": 2})
    assert [optimizer_steps(work, rank) for rank in range(2)] == [2, 2]
    assert len(list((work.root / "output" / "profile").iterdir())) == 2
    assert losses(work) == losses(train(tmp_path / "plain", ranks=2))


def test_steps_are_counted_from_where_an_attempt_begins(tmp_path: Path) -> None:
    env: dict[str, str] = {Env.CHECKPOINT_EVERY_STEPS: "5"}
    work = train(tmp_path / "work", env=env, profile={"first_step": 2, "steps": 1})
    saved = checkpoint_folder(work.checkpoints, 5)
    again = train(tmp_path / "again", env={Env.RESUME_FROM: str(saved)}, profile={"first_step": 2, "steps": 20})
    assert optimizer_steps(again) == 2, "of three steps from the second on: the training ended among the traced ones"


def test_trace_of_too_many_micro_batches_is_shorter(tmp_path: Path) -> None:
    sizes = {"global_batch_size": 100, "micro_batch_size": 1}
    work = train(tmp_path / "work", steps=3, profile={"first_step": 1, "steps": 3}, log_samples=False, **sizes)
    assert optimizer_steps(work) == 2
    assert "2 steps of 3 are traced: a step has 100 micro-batches" in (work.root / "log").read_text()


def test_deterministic_training_has_the_same_losses(tmp_path: Path) -> None:
    """On a processor it has them anyway: here it is shown that no operation of a training refuses."""
    settings: dict[str, Any] = {"activation_checkpointing": "selective", "sample_every": 4, "ema": 0.9}
    works = [train(tmp_path / str(n), ranks=2, deterministic=bool(n), **settings) for n in range(2)]
    assert losses(works[0]) == losses(works[1])
