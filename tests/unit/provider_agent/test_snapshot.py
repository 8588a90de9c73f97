"""Mallory's program swaps files for links; the agent, perhaps root, must not read through them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from provider_agent.lease import snapshot
from provider_agent.lease.snapshot import file_size, read_bytes, take_snapshot
from tests.unit.provider_agent.links import forbid_links


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "private").write_text("Bob's own")
    work = tmp_path / "work"
    (work / "output" / "deep").mkdir(parents=True)
    (work / "output" / "deep" / "model").write_text("weights")
    return work


def test_regular_files_are_kept_with_their_folders(work: Path, tmp_path: Path) -> None:
    assert take_snapshot(work, "output", tmp_path / "snap") == 1
    assert (tmp_path / "snap" / "deep" / "model").read_text() == "weights"


def test_checkpoint_that_was_copied_in_part_is_not_kept(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_links(monkeypatch)
    assert take_snapshot(work, "output", tmp_path / "snap") == 1
    monkeypatch.setattr(snapshot, "COPY_SECONDS_MAX", -1.0)
    with pytest.raises(ValueError, match="could not be copied within"):
        take_snapshot(work, "output", tmp_path / "snap")


def test_snapshot_outlives_the_deletion_of_the_original(work: Path, tmp_path: Path) -> None:
    take_snapshot(work, "output", tmp_path / "snap")
    (work / "output" / "deep" / "model").unlink()
    assert (tmp_path / "snap" / "deep" / "model").read_text() == "weights"


def test_links_and_pipes_are_left_out(work: Path, tmp_path: Path) -> None:
    (work / "output" / "link").symlink_to(tmp_path / "private")
    (work / "output" / "folder").symlink_to(tmp_path)
    os.mkfifo(work / "output" / "pipe")
    assert take_snapshot(work, "output", tmp_path / "snap") == 1
    assert sorted(path.name for path in (tmp_path / "snap").rglob("*")) == ["deep", "model"]


def test_folder_that_became_a_link_is_refused(work: Path, tmp_path: Path) -> None:
    (work / "checkpoint").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r".*"):
        take_snapshot(work, "checkpoint", tmp_path / "snap")


def test_event_file_that_became_a_link_or_pipe_is_empty(work: Path, tmp_path: Path) -> None:
    (work / "events.jsonl").symlink_to(tmp_path / "private")
    assert (file_size(work / "events.jsonl"), read_bytes(work / "events.jsonl", 0, 100)) == (0, b"")
    (work / "events.jsonl").unlink()
    os.mkfifo(work / "events.jsonl")
    assert (file_size(work / "events.jsonl"), read_bytes(work / "events.jsonl", 0, 100)) == (0, b"")
