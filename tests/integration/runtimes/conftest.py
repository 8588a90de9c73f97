"""One uninterrupted training and one that was killed, shared by the tests that compare with them, in any process."""

from __future__ import annotations

import fcntl
import os
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

    def train(root: Path) -> None:
        code, output = Work(root, ranks=2).write({**MICRO_CONFIG, "steps": STEPS}).run()
        assert code == 0, output

    return Work(_made_once("uninterrupted", train, tmp_path_factory), ranks=2)


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """The same training, killed by SIGKILL after a complete checkpoint; a later one lies there half-written."""
    env: dict[str, str] = {Env.CHECKPOINT_EVERY_STEPS: str(SAVED_EVERY), Env.CHECKPOINT_KEEP: "9"}

    def train_and_kill(root: Path) -> None:
        work = Work(root, ranks=2, env=env)
        process = work.write({**MICRO_CONFIG, "steps": STEPS}).start()

        def has_gone_on() -> bool:
            steps = [event["step"] for event in work.events("step")]
            return bool(work.events("checkpointed")) and max(steps, default=0) >= KILLED_AFTER

        wait_until(has_gone_on, process)
        kill_group(process)
        complete, *later = complete_checkpoints(work.checkpoints)
        for folder in later:  # saved while the kill was late
            shutil.rmtree(folder)
        partial = checkpoint_folder(work.checkpoints, PARTIAL_STEP)
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(complete, partial)
        (partial / MANIFEST_NAME).unlink()

    return Work(_made_once("killed", train_and_kill, tmp_path_factory), ranks=2, env=env)


def _made_once(name: str, make: Callable[[Path], None], folders: pytest.TempPathFactory) -> Path:
    """A folder that the first process which needs it fills, and all others read: a training takes both cores."""
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    common = folders.getbasetemp().parent if is_worker else folders.getbasetemp()
    with (common / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (common / name).is_dir():
            part = folders.mktemp(name)
            make(part)
            part.rename(common / name)
    return common / name


@pytest.fixture
def revive(killed: Work, tmp_path: Path) -> Callable[..., Work]:
    """A copy of the killed training's folder, without its events, to go on from on some number of ranks."""

    def copy(*, ranks: int) -> Work:
        shutil.copytree(killed.root, tmp_path / "work")
        (tmp_path / "work" / "events.jsonl").unlink()
        return Work(tmp_path / "work", ranks=ranks, env={Env.CHECKPOINT_EVERY_STEPS: "100"})

    return copy
