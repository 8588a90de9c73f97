"""A training whose evaluation loss falls no more ends early: at the same step after a resume, with its best weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from runtimes.contract import Env, ExitCode, checkpoint_folder, complete_checkpoints
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, finish, losses, wait_until
from tests.integration.runtimes.train.families import FAMILIES, make_folder

STEPS = 60
EVERY = 4
CONFIG: dict[str, Any] = {
    **MICRO_CONFIG,
    "steps": STEPS,
    "evaluate_every": EVERY,
    "learning_rate": 0.3,  # far too high: the loss falls, and then it rises
    "warmup_steps": STEPS,
    "gradient_clip": 100.0,
    "sample_every": -1,
    "early_stop": {"patience": 3, "export_best": True},
}


def prepare(root: Path, *, ranks: int = 1, env: dict[str, str] | None = None, **changes: Any) -> Work:
    settings: dict[str, str] = {Env.CHECKPOINT_EVERY_STEPS: str(EVERY), Env.CHECKPOINT_KEEP: "99", **(env or {})}
    return Work(root, ranks=ranks, env=settings, launched=ranks > 1).write({**CONFIG, **changes})


def train(root: Path, **changes: Any) -> Work:
    work = prepare(root, **changes)
    code, output = work.run()
    assert code == ExitCode.OK, output
    return work


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """A training on one rank that ended early."""
    return train(tmp_path_factory.mktemp("stopped"))


def evaluations(work: Work) -> dict[int, float]:
    return {event["step"]: event["loss"] for event in work.events("evaluated")}


def test_training_ends_after_three_evaluations_without_a_better_one(stopped: Work) -> None:
    found = evaluations(stopped)
    best = min(found, key=lambda step: found[step])
    end = best + 3 * EVERY
    assert 0 < best < end < STEPS, found
    assert max(found) == max(losses(stopped)) == end
    (event,) = stopped.events("stopped_early")
    assert (event["step"], event["steps_total"], event["best_step"]) == (end, STEPS, best)
    assert event["best_loss"] == found[best]
    assert stopped.events("finished")[0]["step"] == end


def test_best_evaluations_weights_are_exported(stopped: Work, tmp_path: Path) -> None:
    best = stopped.events("stopped_early")[0]["best_step"]
    assert stopped.events("exported")[0]["best_step"] == best
    dcp_to_torch_save(checkpoint_folder(stopped.checkpoints, best), tmp_path / "state")
    saved = torch.load(tmp_path / "state")["model"]
    exported = load_file(stopped.root / "output" / "model" / "model.safetensors")
    assert all(torch.equal(weight, saved[name]) for name, weight in exported.items())


@pytest.mark.parametrize("strategy", ["fsdp2", "ddp"])
def test_resumed_training_ends_at_the_same_step_with_the_same_weights(
    strategy: str, stopped: Work, tmp_path: Path
) -> None:
    """From a checkpoint after the best evaluation, on two ranks: the best weights are nowhere but in it."""
    (end,) = stopped.events("stopped_early")
    saved = checkpoint_folder(stopped.checkpoints, end["best_step"] + EVERY)
    work = train(tmp_path / "resumed", ranks=2, strategy=strategy, env={Env.RESUME_FROM: str(saved)})
    (again,) = work.events("stopped_early")
    assert (again["step"], again["best_step"]) == (end["step"], end["best_step"])
    assert again["best_loss"] == end["best_loss"]
    exported, expected = (load_file(each.root / "output" / "model" / "model.safetensors") for each in (work, stopped))
    assert all(torch.equal(weight, expected[name]) for name, weight in exported.items())


def test_stop_signal_loses_no_evaluation(stopped: Work, tmp_path: Path) -> None:
    """The checkpoint that it makes knows the evaluation of its own step, whichever that is."""
    work = prepare(tmp_path / "stopped", evaluate_every=1, early_stop={"patience": 40})
    process = work.start()
    wait_until(lambda: len(work.events("step")) >= 2, process)
    process.terminate()
    assert finish(process)[0] == ExitCode.STOPPED
    step = int(complete_checkpoints(work.checkpoints)[-1].name.removeprefix("step-"))
    assert max(evaluations(work)) == step


def test_last_weights_are_exported_where_the_best_are_not_asked_for(stopped: Work, tmp_path: Path) -> None:
    work = train(tmp_path / "last", early_stop={"patience": 3})
    assert work.events("stopped_early")[0]["step"] == stopped.events("stopped_early")[0]["step"]
    assert "best_step" not in work.events("exported")[0]
    exported, best = (load_file(each.root / "output" / "model" / "model.safetensors") for each in (work, stopped))
    assert not torch.equal(exported["model.norm.weight"], best["model.norm.weight"])


def test_training_without_a_finite_gradient_fails_and_does_not_end_early(tmp_path: Path) -> None:
    """Of a model whose numbers are finite and whose logits are not: no evaluation of it is, either."""
    work = prepare(tmp_path / "lost", model="mine", evaluate_every=1, early_stop={"patience": 1})
    folder = make_folder(FAMILIES["llama-3"], work.root / "input" / "mine")
    weights = load_file(folder / "model.safetensors")
    save_file({name: torch.full_like(each, 3e38) for name, each in weights.items()}, folder / "model.safetensors")
    code, output = work.run()
    assert code == ExitCode.BAD_DATA, output
    assert not work.events("stopped_early")
    assert "the gradient was not finite for 20 steps in a row" in work.events("failed")[0]["message"]
