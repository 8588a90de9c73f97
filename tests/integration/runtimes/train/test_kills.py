"""A training that is killed inside its saves, again and again, ends as if nobody had disturbed it.

SOUK_CHECKPOINT_KILLS is the number of kills; `make soak` makes 200.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from runtimes.contract import MANIFEST_NAME, Env, complete_checkpoints, list_files, read_manifest
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, kill_group, losses, samples, wait_until

KILLS = int(os.environ.get("SOUK_CHECKPOINT_KILLS", "2"))
STEPS_PER_KILL = 3  # at most two saves end before the one that is cut, and then comes the next start
STEPS_SPARE = 60  # that it may train while this process is late, some seconds in all
KILLS_SPARE = 3  # until one cuts a save, where all so far came too late
STEPS = STEPS_PER_KILL * (KILLS + KILLS_SPARE) + STEPS_SPARE
SECONDS_INTO_SAVE = 0.03  # about what a save of so small a model takes
SECONDS_PER_KILL = 30


def partial_folders(work: Work) -> set[Path]:
    """Checkpoints that are being written."""
    return {path for path in work.checkpoints.glob("step-*") if not (path / MANIFEST_NAME).is_file()}


def kill_inside_a_save(work: Work, dice: random.Random) -> bool:
    """Start it and kill it a moment after a save began; whether the save was cut."""
    before = partial_folders(work)
    saved = len(work.events("checkpointed"))
    process = work.start()
    passed_over = dice.randrange(STEPS_PER_KILL - 1)
    wait_until(lambda: len(work.events("checkpointed")) >= saved + passed_over, process)
    wait_until(lambda: bool(partial_folders(work) - before), process)
    time.sleep(dice.uniform(0, SECONDS_INTO_SAVE))
    kill_group(process)
    return bool(partial_folders(work))


def assert_whole(work: Work) -> None:
    """What says that it is complete has every byte that it says."""
    for folder in complete_checkpoints(work.checkpoints):
        assert read_manifest(folder)["files"] == [entry.__dict__ for entry in list_files(folder)], folder


@pytest.mark.timeout(120 + SECONDS_PER_KILL * (KILLS + KILLS_SPARE))
def test_kills_inside_saves_change_neither_samples_nor_losses(tmp_path: Path) -> None:
    config = {**MICRO_CONFIG, "steps": STEPS, "evaluate_every": STEPS}
    like = Work(tmp_path / "like", ranks=1, launched=False).write(config)
    code, output = like.run()
    assert code == 0, output

    every_step: dict[str, str] = {Env.CHECKPOINT_EVERY_STEPS: "1"}
    work = Work(tmp_path / "killed", ranks=1, launched=False, env=every_step).write(config)
    dice = random.Random(1)
    kills = cut = 0
    while kills < KILLS or (not cut and kills < KILLS + KILLS_SPARE):
        kills += 1
        cut += kill_inside_a_save(work, dice)
        assert_whole(work)
    code, output = work.run()
    assert code == 0, output

    assert cut, "no kill came while a checkpoint was being written"
    assert work.events("finished")[-1]["step"] == STEPS
    assert not partial_folders(work)
    assert samples(work) == samples(like)
    assert losses(work) == losses(like)
    resumed = [event["step"] for event in work.events("resumed")]
    assert resumed == sorted(resumed)
    print(f"{kills} kills, {cut} of them cut a save; resumed from {resumed}")
