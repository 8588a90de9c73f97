"""Which checkpoints are kept, found and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtimes.contract import Env, checkpoint_folder, complete_checkpoints, write_manifest
from runtimes.train import checkpoint
from runtimes.train.checkpoint import SaveInterval, find_checkpoint, prune_checkpoints, read_trainer, remove_partial
from runtimes.train.container import read_container
from runtimes.train.errors import BadCheckpoint


def make(root: Path, step: int, *, complete: bool = True) -> Path:
    folder = checkpoint_folder(root, step)
    folder.mkdir(parents=True)
    (folder / "__0_0.distcp").write_bytes(b"weights")
    if complete:
        write_manifest(folder, step=step)
    return folder


def steps_in(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_newest_complete_ones_are_kept_and_partial_ones_are_not_counted(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        make(tmp_path, step)
    make(tmp_path, 40, complete=False)
    prune_checkpoints(tmp_path, keep=2)
    assert steps_in(tmp_path) == ["step-00000020", "step-00000030", "step-00000040"]


def test_last_good_one_is_never_deleted(tmp_path: Path) -> None:
    make(tmp_path, 10)
    for step in (20, 30):
        make(tmp_path, step, complete=False)
    prune_checkpoints(tmp_path, keep=1)
    assert complete_checkpoints(tmp_path) == [checkpoint_folder(tmp_path, 10)]


def test_only_partial_ones_are_removed_at_the_start(tmp_path: Path) -> None:
    make(tmp_path, 10)
    make(tmp_path, 20, complete=False)
    (tmp_path / "notes").mkdir()
    given = make(tmp_path, 5, complete=False)
    remove_partial(tmp_path, but=given)
    assert steps_in(tmp_path) == ["notes", "step-00000005", "step-00000010"]


def test_given_checkpoint_wins_over_the_newest_of_the_folder(tmp_path: Path) -> None:
    newest = make(tmp_path / "checkpoint", 20)
    make(tmp_path / "checkpoint", 30, complete=False)
    given = make(tmp_path / "resume", 10)
    env: dict[str, str] = {Env.WORK_DIR: str(tmp_path)}
    assert find_checkpoint(read_container(env, config=None, output=None)) == newest
    env[Env.RESUME_FROM] = str(given)
    assert find_checkpoint(read_container(env, config=None, output=None)) == given
    # One node of a gang has only its own part, so it waits to be given the whole.
    gang: dict[str, str] = {Env.WORK_DIR: str(tmp_path), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
    assert find_checkpoint(read_container(gang, config=None, output=None)) is None


@pytest.mark.parametrize("name", ["", "trainer.json"])
def test_folder_without_its_metadata_is_refused(name: str, tmp_path: Path) -> None:
    folder = make(tmp_path, 10)
    if name:
        (folder / name).write_text("{}")
    with pytest.raises(BadCheckpoint, match="checkpoint step-00000010 is not complete"):
        read_trainer(folder)


def test_a_tokenizer_that_no_memory_holds_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "TOKENIZER_BYTES_MAX", 10)
    folder = make(tmp_path, 10)
    (folder / "tokenizer.json").write_bytes(b"{}" * 10)
    with pytest.raises(BadCheckpoint, match=r"tokenizer\.json is larger than 10 bytes"):
        checkpoint.read_tokenizer(folder)


def interval(mean_seconds: int, every_seconds: int = 300) -> SaveInterval:
    env = {Env.MEAN_SECONDS_TO_FAILURE: str(mean_seconds), Env.CHECKPOINT_EVERY_SECONDS: str(every_seconds)}
    return SaveInterval(read_container(env, config=None, output=None))


def test_interval_that_was_asked_for_stays() -> None:
    asked = interval(0)
    asked.learn(blocked=5.0, total=60.0)
    assert (asked.is_reckoned, asked.seconds) == (False, 300.0)


@pytest.mark.parametrize(
    ("blocked", "total", "mean_seconds", "expected"),
    [
        (0.05, 1.0, 86_400, 93.0),  # sqrt(2 x 0.05 x 86400)
        (2.0, 8.0, 86_400, 587.9),
        (2.0, 8.0, 21_600, 293.9),  # nodes that fail four times as often: half of it
        (2.0, 90.0, 86_400, 900.0),  # a slow disk: writing takes a tenth of the time
        (0.0, 0.5, 86_400, 30.0),
        (600.0, 700.0, 10**8, 3600.0),
    ],
)
def test_interval_loses_least(blocked: float, total: float, mean_seconds: int, expected: float) -> None:
    reckoned = interval(mean_seconds)
    assert reckoned.seconds == 60.0, "before anything is known"
    reckoned.learn(blocked, total)
    assert reckoned.seconds == expected
