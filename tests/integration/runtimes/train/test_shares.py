"""Ranks of unlike speeds: the faster ones compute more of each batch, and the training stays what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.runtimes.programs import MICRO_CONFIG, Work, losses, samples

STEPS = 40
LOSS_DIFFERENCE_MAX = 1e-4
REPOSITORY = Path(__file__).parents[4]
SLOW_RANK = """
import os, time
from torch.nn.modules.module import register_module_forward_hook
def wait(block, *_):  # in the launcher, whose forks the ranks are
    if os.environ.get("LOCAL_RANK") == "1" and type(block).__name__.endswith("LlamaDecoderLayer"):
        time.sleep(0.06)
register_module_forward_hook(wait)
"""


def run(root: Path, *, ranks: int, **changes: object) -> Work:
    """A whole training whose second rank has a slow device."""
    hook = root / "hook"
    hook.mkdir(parents=True)
    (hook / "sitecustomize.py").write_text(SLOW_RANK)
    env = {"PYTHONPATH": f"{hook}:{REPOSITORY}"}
    work = Work(root, ranks=ranks, env=env, launched=ranks > 1)
    code, output = work.write({**MICRO_CONFIG, "steps": STEPS, "evaluate_every": STEPS, **changes}).run()
    assert code == 0, output
    return work


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> Work:
    return run(tmp_path_factory.mktemp("even"), ranks=1)


@pytest.mark.parametrize("strategy", ["fsdp2", pytest.param("ddp", marks=pytest.mark.soak)])
def test_slow_rank_computes_less_and_losses_are_the_same(even: Work, tmp_path: Path, strategy: str) -> None:
    work = run(tmp_path / "work", ranks=2, strategy=strategy, shares="measured")
    (first, second) = work.events("shared")[-1]["sequences"]
    assert first + second == MICRO_CONFIG["global_batch_size"]
    assert first >= 2 * second, "a block takes the first rank a few milliseconds, the second sixty more"
    assert samples(work) == samples(even)
    assert max(abs(losses(work)[step] - losses(even)[step]) for step in losses(even)) <= LOSS_DIFFERENCE_MAX
