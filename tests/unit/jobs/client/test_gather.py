"""The files of a job are what its file names, and nothing else on this computer."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from jobs.client import gather
from jobs.spec import SpecErrors, parse

HEAD = "kind: train\nname: a\nbudget: {max_total: 1}\ncommand: x\nfiles: "


def paths(folder: Path, files: str) -> list[str]:
    return [file.entry.path for file in gather.gather_files(parse(HEAD + files), folder)]


def test_folder_is_gathered_without_what_never_belongs_to_a_job(job_file: Path) -> None:
    assert paths(job_file.parent, "[data/, train.py]") == ["data/a.txt", "data/empty", "train.py"]


def test_entry_has_size_and_hash(job_file: Path) -> None:
    (file,) = gather.gather_files(parse(HEAD + "train.py"), job_file.parent)
    assert (file.entry.size, file.entry.sha256) == (14, hashlib.sha256(b"print('hello')").hexdigest())


def test_file_named_twice_in_different_ways_is_sent_once(job_file: Path) -> None:
    assert paths(job_file.parent, "[data, data/a.txt]") == ["data/a.txt", "data/empty"]


def test_link_that_leads_out_of_the_folder_is_refused(job_file: Path) -> None:
    (job_file.parent / "data" / "key").symlink_to("/etc/passwd")
    with pytest.raises(SpecErrors, match="leads out of the job file's folder"):
        paths(job_file.parent, "[data]")


def test_loop_of_links_ends(job_file: Path) -> None:
    (job_file.parent / "data" / "loop").symlink_to(job_file.parent / "data")
    with pytest.raises(SpecErrors, match="leads in a circle"):
        paths(job_file.parent, "[data]")


def test_too_many_bytes_are_refused(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "FILES_BYTES_MAX", 5)
    with pytest.raises(SpecErrors, match="14 bytes are too many"):
        paths(job_file.parent, "[train.py]")


def test_all_missing_files_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpecErrors) as caught:
        paths(tmp_path, "[a, b]")
    assert [error.path for error in caught.value.errors] == ["files[0]", "files[1]"]


def test_a_dot_is_the_whole_folder_of_the_job_file(job_file: Path) -> None:
    assert paths(job_file.parent, ".") == ["data/a.txt", "data/empty", "job.yaml", "train.py"]
    assert paths(job_file.parent, "[./, train.py]") == ["data/a.txt", "data/empty", "job.yaml", "train.py"]


def test_ignored_files_are_left_out_of_folders(job_file: Path) -> None:
    (job_file.parent / ".gitignore").write_text("*.txt\n")
    assert paths(job_file.parent, "data") == ["data/empty"]
    (job_file.parent / ".soukignore").write_text("# not sent\ndata/\n!data/a.txt\n.*ignore\n*.yaml\n")
    assert paths(job_file.parent, ".") == ["train.py"], "its own file counts in place of git's, by the same rules"


def test_a_file_that_is_named_is_sent_although_it_is_ignored(job_file: Path) -> None:
    (job_file.parent / ".soukignore").write_text("data\n")
    assert paths(job_file.parent, "[., data/a.txt]") == [".soukignore", "data/a.txt", "job.yaml", "train.py"]


def test_a_folder_that_is_named_is_sent_although_it_is_ignored(job_file: Path) -> None:
    (job_file.parent / ".gitignore").write_text("data/\n")
    assert paths(job_file.parent, "[data, train.py]") == ["data/a.txt", "data/empty", "train.py"]


def test_an_entry_that_leaves_nothing_to_send_is_a_mistake(job_file: Path) -> None:
    (job_file.parent / ".gitignore").write_text("*.txt\nempty\n")
    with pytest.raises(SpecErrors, match=r"files\[0\].*'data' has no file.*\.gitignore"):
        paths(job_file.parent, "[data, train.py]")


def test_an_ignore_file_that_cannot_be_read_is_named(job_file: Path) -> None:
    (job_file.parent / ".soukignore").write_text("!\n")
    with pytest.raises(SpecErrors, match=r"\.soukignore cannot be used"):
        paths(job_file.parent, ".")
