"""A training that was killed goes on as if nothing had happened, on any number of ranks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp

from runtimes.contract import MANIFEST_NAME, Env, ExitCode, complete_checkpoints, read_manifest
from runtimes.train.checkpoint import read_trainer
from runtimes.train.errors import BadCheckpoint
from tests.integration.runtimes.conftest import PARTIAL_STEP, STEPS
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, kill_group, losses, samples, wait_until

COMPARED_STEPS = 50
LOSS_DIFFERENCE_MAX = 1e-4


def assert_goes_on(work: Work, *, after: int, like: Work) -> None:
    """The next 50 steps see the same samples in the same order, with the same losses."""
    steps = range(after + 1, after + 1 + COMPARED_STEPS)
    assert min(samples(work)) == after + 1
    assert [samples(work)[step] for step in steps] == [samples(like)[step] for step in steps]
    worst = max(abs(losses(work)[step] - losses(like)[step]) for step in steps)
    assert worst <= LOSS_DIFFERENCE_MAX


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.soak), 1], ids=lambda ranks: f"2-to-{ranks}")
def test_killed_training_goes_on_from_its_checkpoint_like_the_uninterrupted_one(
    ranks: int, uninterrupted: Work, revive: Callable[..., Work]
) -> None:
    work = revive(ranks=ranks)
    partial = work.checkpoints / f"step-{PARTIAL_STEP:08d}"
    assert partial.is_dir()
    saved_at = int(complete_checkpoints(work.checkpoints)[-1].name.removeprefix("step-"))
    assert saved_at + COMPARED_STEPS <= STEPS
    code, output = work.run()
    assert code == 0, output
    resumed = work.events("resumed")[0]
    assert (resumed["step"], resumed["from_world_size"]) == (saved_at, 2)
    assert saved_at < PARTIAL_STEP
    assert not partial.exists()
    assert work.events("started")[0]["world_size"] == ranks
    assert_goes_on(work, after=saved_at, like=uninterrupted)
    assert work.events("finished")[0]["step"] == STEPS


def test_parts_of_two_nodes_make_one_checkpoint(uninterrupted: Work, tmp_path: Path) -> None:
    config = {**MICRO_CONFIG, "steps": STEPS}
    gang: dict[str, str] = {
        Env.NODES: "2",
        Env.MASTER_ADDR: "127.0.0.1",
        Env.MASTER_PORT: "29737",
        Env.CHECKPOINT_EVERY_STEPS: "20",
        Env.CHECKPOINT_KEEP: "9",  # the first is there still when this process is late to look
    }
    nodes = [
        Work(tmp_path / f"node-{rank}", ranks=1, env={**gang, Env.NODE_RANK: str(rank)}).write(config)
        for rank in range(2)
    ]
    processes = [node.start() for node in nodes]
    first = [node.checkpoints / "step-00000020" for node in nodes]
    wait_until(lambda: all((part / MANIFEST_NAME).is_file() for part in first), processes[0])
    for process in processes:
        kill_group(process)
    assert [read_manifest(part)["node_rank"] for part in first] == [0, 1]
    assert [event["event"] for event in nodes[1].events()] == ["started"]

    together = tmp_path / "together" / "step-00000020"
    for part in first:
        shutil.copytree(part, together, dirs_exist_ok=True)
    resumed = Work(tmp_path / "resumed", ranks=1, env={Env.RESUME_FROM: str(together)}, launched=False).write(config)
    code, output = resumed.run()
    assert code == 0, output
    assert_goes_on(resumed, after=20, like=uninterrupted)

    # Either node's part alone is refused, and the message names what is missing.
    with pytest.raises(BadCheckpoint, match=r"lacks 1 of 2 parts: __1_0\.distcp"):
        read_trainer(first[0])
    with pytest.raises(BadCheckpoint, match="is not complete"):
        read_trainer(first[1])


def test_moment_that_is_not_finite_is_refused_before_anything_is_said_of_the_checkpoint(
    revive: Callable[..., Work], tmp_path: Path
) -> None:
    """It would spoil the weights in the first step, and then the training's owner would be to blame."""
    work = revive(ranks=1)
    work.launched = False
    folder = complete_checkpoints(work.checkpoints)[-1]
    dcp_to_torch_save(folder, tmp_path / "state")
    state = torch.load(tmp_path / "state", weights_only=False)
    state["optimizer"]["state"]["model.norm.weight"]["exp_avg"][3] = float("nan")
    torch.save(state, tmp_path / "state")
    for part in [*folder.glob("*.distcp"), folder / ".metadata"]:
        part.unlink()
    torch_save_to_dcp(tmp_path / "state", folder)
    code, output = work.run()
    assert code == ExitCode.BAD_CHECKPOINT, output
    assert work.events("failed")[0]["message"] == f"checkpoint {folder.name} has numbers that are not finite"
    assert not work.events("resumed")


def test_batch_that_moves_the_cursor_is_refused_at_resume(revive: Callable[..., Work]) -> None:
    work = revive(ranks=1)
    work.launched = False
    work.write({**MICRO_CONFIG, "steps": STEPS, "global_batch_size": 4})
    code, output = work.run()
    assert code == ExitCode.BAD_CHECKPOINT, output
    assert "global_batch_size was 9 in the checkpoint, is 4" in work.events("failed")[0]["message"]
