"""A path that a strange program writes to is copied as it was at one moment, and comes back as it was."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from provider_agent.lease.path_checkpoints import copying, listing
from provider_agent.lease.path_checkpoints.copying import CopyTorn, copy_path
from provider_agent.lease.path_checkpoints.listing import CopyRefused, list_path
from provider_agent.lease.path_checkpoints.restoring import restore_path
from provider_agent.lease.path_checkpoints.state import NOTES_MAX, CopyState
from runtimes import contract

FILES = {"results/checkpoint-2/model": b"weights" * 1000, "results/state.json": b"{}", "results/MANIFEST.json": b"own"}
DAY_NS = 24 * 3600 * 10**9


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work folder with results of a program, and something of the provider's beside it."""
    (tmp_path / "private").write_text("Bob's own")
    work = tmp_path / "work"
    for name, data in FILES.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(data)
    return work


def copied(work: Path, path: str = "results") -> Path:
    into = work.parent / "snapshots" / "copying"
    copy_path(work, path, list_path(work, path), into, step=3, is_stopped=lambda: False, seconds_max=60)
    return into


def content(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_folder_comes_back_as_it_was_on_another_node(work: Path, tmp_path: Path) -> None:
    changed_ns = 1_700_000_000 * 10**9 + 5
    os.utime(work / "results/checkpoint-2/model", ns=(changed_ns, changed_ns))
    checkpoint, other = copied(work), tmp_path / "other"
    (other / "results" / "stale").mkdir(parents=True)
    assert restore_path(checkpoint, other, "results")
    assert content(other) == FILES, "and what lay there is gone"
    assert (other / "results/checkpoint-2/model").stat().st_mtime_ns == changed_ns
    assert (other / "results/checkpoint-2").stat().st_mtime_ns == changed_ns, "there are programs that choose by it"


def test_a_copy_is_a_checkpoint_with_a_manifest_of_every_file(work: Path) -> None:
    folder = copied(work)
    body = contract.read_manifest(folder)
    assert (body["step"], body["path"]) == (3, "results")
    found = {entry.path: entry.sha256 for entry in contract.list_files(folder)}
    assert {entry["path"]: entry["sha256"] for entry in body["files"]} == found
    assert sorted(found) == sorted(f"content/{name}" for name in FILES)


def test_one_file_below_other_folders_comes_back(work: Path, tmp_path: Path) -> None:
    checkpoint, other = copied(work, "results/checkpoint-2/model"), tmp_path / "other"
    other.mkdir()
    assert restore_path(checkpoint, other, "results/checkpoint-2/model")
    assert content(other) == {"results/checkpoint-2/model": FILES["results/checkpoint-2/model"]}


def test_only_what_was_written_changes_the_digest(work: Path) -> None:
    before = list_path(work, "results").digest()
    assert list_path(work, "results").digest() == before
    (work / "results" / "state.json").write_bytes(b"[]")
    os.utime(work / "results" / "state.json", ns=(1, 1))
    assert list_path(work, "results").digest() != before


def test_links_and_pipes_are_left_out(work: Path, tmp_path: Path) -> None:
    (work / "results" / "link").symlink_to(tmp_path / "private")
    (work / "results" / "folder").symlink_to(tmp_path)
    os.mkfifo(work / "results" / "pipe")
    assert sorted(content(copied(work))) == sorted(["MANIFEST.json", *(f"content/{name}" for name in FILES)])


@pytest.mark.parametrize("path", ["link", "link/private", "pipe", "missing", "results/missing"])
def test_a_path_that_is_a_link_or_missing_has_no_files(work: Path, tmp_path: Path, path: str) -> None:
    (work / "link").symlink_to(tmp_path)
    os.mkfifo(work / "pipe")
    assert list_path(work, path).marks == {}


def test_names_that_cannot_be_kept_are_left_out_and_named(work: Path) -> None:
    odd = os.fsencode(work / "results") + b"/\xff\xfe.bin"
    Path(os.fsdecode(odd)).write_bytes(b"x")
    for name in ("a.partial", "n" * 250, "STATE.json", "line\nbreak"):
        (work / "results" / name).write_bytes(b"x")
    found = list_path(work, "results")
    assert len(found.left_out) == listing.NAMES_SHOWN_MAX
    kept = sorted(found.marks)
    assert kept == sorted([*(set(FILES) - {"results/state.json"}), "results/STATE.json"]), "one of two cases of a name"
    assert all(each.isascii() and each.isprintable() for each in found.left_out if "\ufffd" not in each)


def test_a_file_that_is_written_during_the_copy_ends_it(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = list_path(work, "results")
    (work / "results" / "state.json").write_bytes(b"{ }")
    into = work.parent / "snapshots" / "copying"
    with pytest.raises(CopyTorn, match=r"state\.json was being written"):
        copy_path(work, "results", before, into, step=1, is_stopped=lambda: False, seconds_max=60)
    assert not into.exists()


def test_a_file_that_was_copied_and_then_written_ends_it(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = copying._copy_file

    def write_behind(*args: object) -> object:
        copied_file = real(*args)
        with (work / "results" / "checkpoint-2" / "model").open("r+b") as out:
            out.write(b"W")
        return copied_file

    monkeypatch.setattr(copying, "_copy_file", write_behind)
    with pytest.raises(CopyTorn, match=r"written"):
        copied(work)
    assert not (work.parent / "snapshots" / "copying").exists()


def test_a_new_file_after_the_copy_ends_it(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_new(*args: object) -> object:
        (work / "results" / "optimizer").write_bytes(b"o")
        return list_path(*args)

    monkeypatch.setattr(copying, "list_path", with_new)
    with pytest.raises(CopyTorn, match="came, went or were written"):
        copied(work)


def test_a_file_that_grows_for_ever_is_read_no_further_than_it_was(work: Path) -> None:
    before = list_path(work, "results")
    with (work / "results" / "state.json").open("ab") as out:
        out.truncate(10**12)
    with pytest.raises(CopyTorn):
        copy_path(work, "results", before, work.parent / "c", step=1, is_stopped=lambda: False, seconds_max=60)


def test_a_file_that_was_swapped_for_a_link_is_not_read(work: Path, tmp_path: Path) -> None:
    before = list_path(work, "results")
    (work / "results" / "state.json").unlink()
    (work / "results" / "state.json").symlink_to(tmp_path / "private")
    with pytest.raises(CopyTorn, match="is gone or became a link"):
        copy_path(work, "results", before, tmp_path / "c", step=1, is_stopped=lambda: False, seconds_max=60)


def test_a_folder_that_was_swapped_for_a_link_is_not_entered(work: Path, tmp_path: Path) -> None:
    before = list_path(work, "results")
    shutil.move(work / "results", tmp_path / "moved")
    (work / "results").symlink_to(tmp_path / "moved")
    with pytest.raises(CopyTorn, match="is gone or became a link"):
        copy_path(work, "results", before, tmp_path / "c", step=1, is_stopped=lambda: False, seconds_max=60)


def test_more_than_half_of_what_is_free_is_refused(work: Path) -> None:
    with (work / "results" / "sparse").open("wb") as out:
        out.truncate(shutil.disk_usage(work).free // 2 + 10 * 1024**2)
    with pytest.raises(CopyRefused, match="keep fewer checkpoints in it, or ask for a larger disk"):
        copied(work)


def test_more_files_than_a_checkpoint_may_have_are_refused(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "FILES_MAX", 2)
    with pytest.raises(CopyRefused, match="more than 2 files"):
        list_path(work, "results")


def test_folders_that_are_too_deep_are_refused(work: Path) -> None:
    (work / "results" / "/".join("d" * 40)).mkdir(parents=True)
    with pytest.raises(CopyRefused, match="folders that are left out: more than"):
        list_path(work, "results")


def test_a_copy_that_is_told_to_stop_or_is_too_slow_leaves_nothing(work: Path) -> None:
    found, into = list_path(work, "results"), work.parent / "c"
    with pytest.raises(CopyTorn, match="the program was ended meanwhile"):
        copy_path(work, "results", found, into, step=1, is_stopped=lambda: True, seconds_max=60)
    with pytest.raises(CopyRefused, match="could not be copied in time"):
        copy_path(work, "results", found, into, step=1, is_stopped=lambda: False, seconds_max=-1)
    assert not into.exists()


def test_what_a_killed_agent_left_of_a_copy_goes_with_the_next_one(work: Path) -> None:
    into = work.parent / "snapshots" / "copying"
    (into / "content" / "results").mkdir(parents=True)
    (into / "content" / "results" / "half").write_bytes(b"h")
    assert "content/results/half" not in content(copied(work))


def test_a_checkpoint_without_the_path_restores_nothing(work: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "content").mkdir(parents=True)
    assert not restore_path(checkpoint, work, "results")
    assert content(work) == FILES


def test_nothing_is_restored_through_a_link(work: Path, tmp_path: Path) -> None:
    checkpoint = copied(work, "results/state.json")
    outside, other = tmp_path / "outside", tmp_path / "other"
    outside.mkdir()
    other.mkdir()
    (other / "results").symlink_to(outside)
    with pytest.raises(OSError, match=r".*"):
        restore_path(checkpoint, other, "results/state.json")
    assert content(outside) == {}


@pytest.mark.parametrize(
    "manifest",
    [b"", b"[" * 100_000, b"[]", b'{"changed_ns": 7}', b'{"changed_ns": {"results/state.json": 1e400}}', b"\xff"],
)
def test_a_manifest_of_nonsense_restores_the_files(work: Path, tmp_path: Path, manifest: bytes) -> None:
    checkpoint, other = copied(work), tmp_path / "other"
    other.mkdir()
    (checkpoint / "MANIFEST.json").write_bytes(manifest)
    assert restore_path(checkpoint, other, "results")
    assert content(other) == FILES


def test_times_of_a_manifest_reach_no_file_outside(work: Path, tmp_path: Path) -> None:
    checkpoint, other = copied(work), tmp_path / "other"
    other.mkdir()
    times = {"../../private": 1, str(tmp_path / "private"): 1, "results/state.json": -DAY_NS}
    (checkpoint / "MANIFEST.json").write_text(json.dumps({"changed_ns": times}))
    before = (tmp_path / "private").stat().st_mtime_ns
    assert restore_path(checkpoint, other, "results")
    assert (tmp_path / "private").stat().st_mtime_ns == before
    assert (other / "results/state.json").stat().st_mtime_ns > DAY_NS


def test_an_agent_that_was_restarted_knows_what_was_copied(tmp_path: Path) -> None:
    assert CopyState.load(tmp_path) == CopyState()
    state = CopyState(resumed_step=7, digest="d", taken=2)
    assert state.note("once")
    assert not state.note("once")
    state.save(tmp_path)
    assert CopyState.load(tmp_path) == CopyState(7, "d", 2, ["once"])
    assert sum(state.note(str(number)) for number in range(100)) == NOTES_MAX - 1
    (tmp_path / "path_checkpoints.json").write_text("{")
    assert CopyState.load(tmp_path) == CopyState()
