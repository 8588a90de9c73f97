"""The average of the weights over the steps: what is evaluated and exported, and nothing that a step sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from runtimes.contract import Env, ExitCode, checkpoint_folder
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, losses

STEPS = 12
DECAY = 0.7
CONFIG: dict[str, Any] = {**MICRO_CONFIG, "steps": STEPS, "evaluate_every": 3, "sample_every": 4, "ema": DECAY}
DIFFERENCE_MAX = 1e-5


def train(root: Path, *, ranks: int, env: dict[str, str] | None = None, **changes: Any) -> Work:
    settings: dict[str, str] = {Env.CHECKPOINT_EVERY_STEPS: "1", Env.CHECKPOINT_KEEP: "99", **(env or {})}
    work = Work(root, ranks=ranks, env=settings, launched=ranks > 1).write({**CONFIG, **changes})
    code, output = work.run()
    assert code == ExitCode.OK, output
    return work


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """A training on one rank that averages its weights."""
    return train(tmp_path_factory.mktemp("alone"), ranks=1)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """The same on two ranks, sharded."""
    return train(tmp_path_factory.mktemp("shared"), ranks=2)


def saved_state(work: Work, step: int, into: Path) -> dict[str, Any]:
    dcp_to_torch_save(checkpoint_folder(work.checkpoints, step), into)
    state: dict[str, Any] = torch.load(into)
    return state


def exported(work: Work) -> dict[str, torch.Tensor]:
    return load_file(work.root / "output" / "model" / "model.safetensors")


def evaluations(work: Work) -> dict[int, float]:
    return {event["step"]: event["loss"] for event in work.events("evaluated")}


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, weight in found.items():
        assert torch.allclose(weight, expected[name], atol=DIFFERENCE_MAX), name


def test_average_is_that_of_the_weights_after_each_step(alone: Work, tmp_path: Path) -> None:
    average = saved_state(alone, 1, tmp_path / "1")["ema"]
    for step in range(2, STEPS):
        state = saved_state(alone, step, tmp_path / str(step))
        decay = min(DECAY, step / (9 + step))
        average = {name: decay * each + (1 - decay) * state["model"][name] for name, each in average.items()}
        assert_close(state["ema"], average)
    assert {each.dtype for each in average.values()} == {torch.float32}


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_steps_are_those_of_a_training_without_it(ranks: int, alone: Work, shared: Work, tmp_path: Path) -> None:
    """Bit by bit: what evaluating with other weights leaves gathered is not computed with."""
    work = train(tmp_path / "plain", ranks=ranks, ema=None)
    averaged = alone if ranks == 1 else shared
    assert losses(averaged) == losses(work)
    assert evaluations(averaged)[0] == evaluations(work)[0]
    assert evaluations(averaged)[6] != evaluations(work)[6]


@pytest.mark.parametrize("strategy", ["fsdp2", "ddp"])
def test_average_is_the_same_on_two_ranks(strategy: str, alone: Work, shared: Work, tmp_path: Path) -> None:
    work = shared if strategy == "fsdp2" else train(tmp_path / "ddp", ranks=2, strategy="ddp")
    assert evaluations(work) == pytest.approx(evaluations(alone), abs=1e-4)
    for name, weight in exported(work).items():
        assert torch.allclose(weight, exported(alone)[name], atol=1e-4), name


def test_exported_weights_are_what_was_evaluated_last(alone: Work, shared: Work, tmp_path: Path) -> None:
    """And not those after the last step, which the same training without an average exports."""
    before = saved_state(alone, STEPS - 1, tmp_path / "before")["ema"]
    after = exported(train(tmp_path / "plain", ranks=1, ema=None))
    for name, weight in exported(alone).items():
        assert torch.allclose(weight, DECAY_AT_END * before[name] + (1 - DECAY_AT_END) * after[name], atol=1e-5), name


DECAY_AT_END = min(DECAY, STEPS / (9 + STEPS))


@pytest.mark.parametrize("ranks", [1, 2])
def test_resumed_average_goes_on(ranks: int, alone: Work, tmp_path: Path) -> None:
    saved = checkpoint_folder(alone.checkpoints, 5)
    work = train(tmp_path / "resumed", ranks=ranks, env={Env.RESUME_FROM: str(saved)})
    assert evaluations(work)[STEPS] == pytest.approx(evaluations(alone)[STEPS], abs=1e-5)
    assert_close(exported(work), exported(alone))


def test_checkpoint_without_an_average_is_refused_by_a_training_with_one(alone: Work, tmp_path: Path) -> None:
    saved = checkpoint_folder(alone.checkpoints, 5)
    work = Work(tmp_path / "other", ranks=1, env={Env.RESUME_FROM: str(saved)}, launched=False)
    code, output = work.write({**CONFIG, "ema": 0.9}).run()
    assert code == ExitCode.BAD_CHECKPOINT, output
    assert "ema was 0.7 in the checkpoint, is 0.9" in work.events("failed")[0]["message"]


def test_best_weights_are_averages_where_these_are_evaluated(tmp_path: Path) -> None:
    """With 1000 as the least improvement the first evaluation stays the best: weights that no step has changed."""
    stop = {"patience": 2, "min_delta": 1000, "export_best": True}
    work = train(tmp_path / "best", ranks=2, early_stop=stop)
    (event,) = work.events("stopped_early")
    assert (event["step"], event["best_step"]) == (6, 0)
    state = saved_state(work, 5, tmp_path / "state")
    assert set(state) == {"model", "optimizer", "ema", "best"}
    for name, weight in exported(work).items():
        assert torch.equal(weight, state["best"][name]), name
        assert name.endswith("norm.weight") or not torch.equal(weight, state["model"][name])
