"""One uninterrupted training and one that was killed, shared by the tests that compare with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from runtimes.contract import MANIFEST_NAME, Env, checkpoint_folder, complete_checkpoints
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, kill_group, wait_until

STEPS = 100
SAVED_EVERY = 20
KILLED_AFTER = 25
PARTIAL_STEP = 90


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """A training on two ranks that nobody disturbed."""
    work = Work(tmp_path_factory.mktemp("uninterrupted"), ranks=2).write({**MICRO_CONFIG, "steps": STEPS})
    code, output = work.run()
    assert code == 0, output
    return work


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """The same training, killed by SIGKILL after a complete checkpoint; a later one lies there half-written."""
    work = Work(tmp_path_factory.mktemp("killed"), ranks=2, env={Env.CHECKPOINT_EVERY_STEPS: str(SAVED_EVERY)})
    process = work.write({**MICRO_CONFIG, "steps": STEPS}).start()

    def has_gone_on() -> bool:
        steps = [event["step"] for event in work.events("step")]
        return bool(work.events("checkpointed")) and max(steps, default=0) >= KILLED_AFTER

    wait_until(has_gone_on, process)
    kill_group(process)
    complete = complete_checkpoints(work.checkpoints)[-1]
    partial = checkpoint_folder(work.checkpoints, PARTIAL_STEP)
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(complete, partial)
    (partial / MANIFEST_NAME).unlink()
    return work


@pytest.fixture
def revive(killed: Work, tmp_path: Path) -> Callable[..., Work]:
    """A copy of the killed training's folder, without its events, to go on from on some number of ranks."""

    def copy(*, ranks: int) -> Work:
        shutil.copytree(killed.root, tmp_path / "work")
        (tmp_path / "work" / "events.jsonl").unlink()
        return Work(tmp_path / "work", ranks=ranks, env={Env.CHECKPOINT_EVERY_STEPS: "100"})

    return copy
