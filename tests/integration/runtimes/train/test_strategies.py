"""Every strategy trains alike, and goes on from the checkpoint of another, on any number of ranks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from runtimes.contract import Env, ExitCode, checkpoint_folder
from runtimes.train.strategies.base import Strategy
from runtimes.train.strategies.registry import STRATEGIES, load_strategy
from tests.integration.runtimes.conftest import STEPS
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, finish, losses, samples

LOSS_DIFFERENCE_MAX = 1e-4
SAVED_STEP = 20
COMPARED_TO_STEP = 50  # later the rounding of another order of sums has grown: 4e-4 at step 70
TOY = "tests.integration.runtimes.train.toy_strategy"


def run(root: Path, strategy: str, *, ranks: int, resume_from: Path | None = None) -> Work:
    """A whole training under a strategy, with a checkpoint every 20 steps."""
    env: dict[str, str] = {Env.CHECKPOINT_EVERY_STEPS: str(SAVED_STEP), Env.CHECKPOINT_KEEP: "9"}
    if resume_from is not None:
        env[Env.RESUME_FROM] = str(resume_from)
    module = TOY if strategy == "toy" else "runtimes.train"
    work = Work(root, ranks=ranks, env=env, launched=ranks > 1, module=module)
    code, output = work.write({**MICRO_CONFIG, "steps": STEPS, "strategy": strategy}).run()
    assert code == 0, output
    return work


def assert_same_training(work: Work, like: Work, *, after: int = 0) -> None:
    """From the step after `after` on, the same samples in the same order with the same losses; both reach the end."""
    assert list(losses(work)) == list(range(after + 1, STEPS + 1))
    steps = range(after + 1, COMPARED_TO_STEP + 1)
    assert [samples(work)[step] for step in steps] == [samples(like)[step] for step in steps]
    assert max(abs(losses(work)[step] - losses(like)[step]) for step in steps) <= LOSS_DIFFERENCE_MAX
    evaluated, expected = (
        next(event["loss"] for event in each.events("evaluated") if event["step"] == COMPARED_TO_STEP)
        for each in (work, like)
    )
    assert evaluated == pytest.approx(expected, abs=LOSS_DIFFERENCE_MAX)


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """A whole training under DDP on two ranks."""
    return run(tmp_path_factory.mktemp("ddp"), "ddp", ranks=2)


@pytest.fixture(scope="module")
def ddp_alone(ddp: Work, tmp_path_factory: pytest.TempPathFactory) -> Work:
    """The same from its checkpoint at step 20 on, on one rank."""
    saved = checkpoint_folder(ddp.checkpoints, SAVED_STEP)
    return run(tmp_path_factory.mktemp("ddp-alone"), "ddp", ranks=1, resume_from=saved)


def test_ddp_has_the_losses_of_fsdp2(ddp: Work, uninterrupted: Work) -> None:
    assert_same_training(ddp, uninterrupted)


def test_model_that_ddp_exports_is_the_one_that_fsdp2_exports(ddp: Work, uninterrupted: Work) -> None:
    from transformers import AutoModelForCausalLM

    models: list[Any] = [
        AutoModelForCausalLM.from_pretrained(work.root / "output" / "model") for work in (ddp, uninterrupted)
    ]
    assert list(models[0].state_dict()) == list(models[1].state_dict())
    ids = torch.arange(2, 34)[None]
    logits = [model(ids).logits for model in models]
    assert torch.allclose(logits[0], logits[1], atol=0.2)  # of weights that 100 steps have changed by more than 1


def test_ddp_goes_on_from_two_ranks_on_one(ddp_alone: Work, uninterrupted: Work) -> None:
    assert ddp_alone.events("resumed")[0]["from_world_size"] == 2
    assert_same_training(ddp_alone, uninterrupted, after=SAVED_STEP)


def test_ddp_goes_on_from_one_rank_on_two(ddp_alone: Work, uninterrupted: Work, tmp_path: Path) -> None:
    saved = checkpoint_folder(ddp_alone.checkpoints, 2 * SAVED_STEP)
    resumed = run(tmp_path / "work", "ddp", ranks=2, resume_from=saved)
    assert resumed.events("resumed")[0]["from_world_size"] == 1
    assert_same_training(resumed, uninterrupted, after=2 * SAVED_STEP)


def test_fsdp2_goes_on_from_a_checkpoint_of_ddp(ddp: Work, uninterrupted: Work, tmp_path: Path) -> None:
    saved = checkpoint_folder(ddp.checkpoints, SAVED_STEP)
    resumed = run(tmp_path / "work", "fsdp2", ranks=1, resume_from=saved)
    assert_same_training(resumed, uninterrupted, after=SAVED_STEP)


def test_ddp_goes_on_from_a_checkpoint_of_fsdp2(revive: Callable[..., Work], uninterrupted: Work) -> None:
    work = revive(ranks=1)
    work.launched = False
    work.write({**MICRO_CONFIG, "steps": STEPS, "strategy": "ddp"})
    code, output = work.run()
    assert code == 0, output
    assert_same_training(work, uninterrupted, after=work.events("resumed")[0]["step"])


@pytest.mark.soak  # the strategies that there are come by the same table
def test_strategy_of_tests_alone_trains_by_a_row_in_the_table(uninterrupted: Work, tmp_path: Path) -> None:
    toy = run(tmp_path / "toy", "toy", ranks=2)
    assert_same_training(toy, uninterrupted)

    # Its checkpoints say that they are laid out in its own way, so no other strategy loads them.
    env: dict[str, str] = {Env.RESUME_FROM: str(checkpoint_folder(toy.checkpoints, SAVED_STEP))}
    refused = Work(tmp_path / "refused", ranks=1, env=env, launched=False)
    code, output = refused.write({**MICRO_CONFIG, "steps": STEPS, "strategy": "ddp"}).run()
    assert code == ExitCode.BAD_CHECKPOINT, output
    message = refused.events("failed")[0]["message"]
    assert "saved by strategy toy in the layout toy, strategy ddp loads plain-names alone" in message


def test_ddp_computes_in_bfloat16_and_keeps_its_weights_in_float32(tmp_path: Path) -> None:
    work = Work(tmp_path / "work", ranks=1, launched=False)
    config = {**MICRO_CONFIG, "steps": 30, "strategy": "ddp", "dtype": "bfloat16"}
    code, output = work.write(config).run()
    assert code == 0, output
    assert work.events("started")[0]["dtype"] == "bfloat16"
    first, last = losses(work)[1], losses(work)[30]
    assert last < first - 0.2
    weights = load_file(work.root / "output" / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_row_of_the_table_is_a_strategy(name: str) -> None:
    assert isinstance(load_strategy(name), Strategy)


def test_two_nodes_of_two_ranks_that_shard_inside_train_like_one_rank(tmp_path: Path) -> None:
    saved, steps = 6, 12
    env: dict[str, str] = {Env.CHECKPOINT_EVERY_STEPS: str(saved), Env.CHECKPOINT_KEEP: "9"}
    config = {**MICRO_CONFIG, "steps": steps, "evaluate_every": 0, "sample_every": -1}
    alone = Work(tmp_path / "alone", ranks=1, launched=False).write(config)
    assert alone.run()[0] == 0
    gang: dict[str, str] = {**env, Env.NODES: "2", Env.MASTER_ADDR: "127.0.0.1", Env.MASTER_PORT: "29741"}
    nodes = [
        Work(tmp_path / f"node-{rank}", ranks=2, env={**gang, Env.NODE_RANK: str(rank)}).write(
            {**config, "strategy": "hsdp", "micro_batch_size": 1}
        )
        for rank in range(2)
    ]
    for process in [node.start() for node in nodes]:
        code, output = finish(process)
        assert code == 0, output
    assert list(losses(nodes[0])) == list(range(1, steps + 1))
    assert losses(nodes[0]) == pytest.approx(losses(alone), abs=LOSS_DIFFERENCE_MAX)

    together = checkpoint_folder(tmp_path / "together", saved)
    for node in nodes:
        shutil.copytree(checkpoint_folder(node.checkpoints, saved), together, dirs_exist_ok=True)
    env = {Env.RESUME_FROM: str(together)}
    resumed = Work(tmp_path / "resumed", ranks=1, env=env, launched=False).write(config)
    code, output = resumed.run()
    assert code == 0, output
    expected = {step: loss for step, loss in losses(alone).items() if step > saved}
    assert losses(resumed) == pytest.approx(expected, abs=LOSS_DIFFERENCE_MAX)
