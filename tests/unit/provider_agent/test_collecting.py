"""What a program left below output/ and beside it is kept; what it was given, and what cannot be kept, is not."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from provider_agent.lease import collecting, walking
from provider_agent.lease.collecting import collect_output, record_given
from tests.unit.provider_agent.links import forbid_links


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work folder as a program finds it, with one file that it was given."""
    work = tmp_path / "work"
    for name in ("input/data", "output", "checkpoint", "resume/step-1"):
        (work / name).mkdir(parents=True)
    (work / "input" / "data" / "given.csv").write_text("1,2")
    (work / "resume" / "step-1" / "weights").write_text("w")
    for name in ("config.json", "events.jsonl"):
        (work / name).touch()
    record_given(work, tmp_path)
    return work


@pytest.fixture
def as_another_user() -> Iterator[Path]:
    """A work folder of a user without root's powers, which the test has until its end."""
    nobody = 65534
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        was_root = os.geteuid() == 0
        if was_root:
            os.seteuid(nobody)
        try:
            work = Path(folder) / "parent" / "work"
            for name in ("output", "checkpoint"):
                (work / name).mkdir(parents=True)
            record_given(work, work.parent)
            yield work
        finally:
            if was_root:
                os.seteuid(0)


def collected(work: Path, patterns: list[str] | None = None) -> tuple[list[str], list[str]]:
    """The paths of the output, and the lines of the log."""
    into = work.parent / "snapshot"
    lines = collect_output(work, work.parent, into, with_beside=True, patterns=patterns)
    return sorted(path.relative_to(into).as_posix() for path in into.rglob("*") if path.is_file()), lines


def test_new_files_beside_output_are_kept_and_given_ones_are_not(work: Path) -> None:
    (work / "results").mkdir()
    (work / "results" / "a.csv").write_text("3")
    (work / "model.pt").write_text("m")
    (work / "input" / "made.txt").write_text("x")
    paths, lines = collected(work)
    assert paths == ["input/made.txt", "model.pt", "results/a.csv"]
    assert lines == ["collected 3 files (input/made.txt, model.pt, results/a.csv) beside output/"]


def test_a_changed_input_is_kept(work: Path) -> None:
    (work / "input" / "data" / "given.csv").write_text("1,2,3")
    assert collected(work)[0] == ["input/data/given.csv"]


def test_what_the_contract_puts_there_is_not_a_result(work: Path) -> None:
    (work / "events.jsonl").write_text("{}")
    (work / "checkpoint" / "step-1").write_text("c")
    (work / "resume" / "step-1" / "weights").write_text("other")
    (work / ".cache").mkdir()
    (work / ".cache" / "hub").write_text("h")
    (work / "input" / "__pycache__").mkdir()
    (work / "input" / "__pycache__" / "m.pyc").write_text("b")
    assert collected(work) == ([], [])


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("results", ["results/a.csv", "results/deep/b.txt"]),
        ("results/", ["results/a.csv", "results/deep/b.txt"]),
        ("*.csv", ["results/a.csv"]),
        ("results/*.txt", ["results/deep/b.txt"]),
        (".cache/hub", [".cache/hub"]),
        ("nothing", []),
    ],
)
def test_patterns_name_files_folders_and_hidden_names(work: Path, pattern: str, expected: list[str]) -> None:
    for path in ("results/a.csv", "results/deep/b.txt", ".cache/hub", "other.bin"):
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text("x")
    assert collected(work, [pattern])[0] == expected


def test_beyond_the_limit_the_smallest_are_kept_and_the_log_says_so(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "COLLECTED_BYTES_MAX", 10)
    for name, size in (("a", 6), ("b", 3), ("huge", 1000)):
        (work / name).write_bytes(b"x" * size)
    paths, lines = collected(work)
    assert paths == ["a", "b"]
    assert lines[0].startswith("left out 1 file (huge): 0 GiB beside output/ are the most without `outputs:`")
    assert collected(work, ["huge"])[0] == ["huge"], "a pattern of the job file has no such limit"


def test_a_name_that_output_has_already_comes_below_work(work: Path) -> None:
    (work / "output" / "model.pt").write_text("of output/")
    (work / "MODEL.pt").write_text("beside")
    assert collected(work)[0] == ["model.pt", "work/MODEL.pt"]
    assert (work.parent / "snapshot" / "model.pt").read_text() == "of output/"


def test_names_that_no_artifact_may_have_cost_themselves_alone(work: Path) -> None:
    (work / "good").write_text("x")
    (work / "back\\slash").write_text("x")
    (work / "bell\x07").write_text("x")
    (Path(os.fsdecode(bytes(work) + b"/\xff\xfe"))).write_text("x")
    paths, lines = collected(work)
    assert paths == ["good"]
    assert lines[0].startswith("left out 3 files (")
    assert "\x07" not in lines[0]


def test_links_lead_nowhere(work: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("Bob's own")
    (work / "folder").symlink_to(tmp_path / "private")
    (work / "link").symlink_to(tmp_path / "private" / "key")
    os.mkfifo(work / "pipe")
    assert collected(work) == ([], [])


def test_a_lease_from_before_the_record_has_its_output_alone(work: Path) -> None:
    (work.parent / collecting.GIVEN_NAME).unlink()
    (work / "model.pt").write_text("m")
    assert collected(work) == ([], [])


def test_an_output_folder_that_is_gone_is_an_empty_one(work: Path) -> None:
    (work / "output").rmdir()
    (work / "beside").write_text("b")
    paths, lines = collected(work)
    assert paths == ["beside"]
    assert lines[0] == "nothing below output/ could be kept: No such file or directory"


def test_an_output_folder_that_became_a_link_leads_nowhere(work: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("Bob's own")
    (work / "output").rmdir()
    (work / "output").symlink_to(tmp_path / "private")
    assert collected(work)[0] == []


def test_names_below_output_that_no_artifact_may_have_cost_themselves_alone(work: Path) -> None:
    for name in ("good", "GOOD2", "good2", "back\\slash", "long" * 60, "MANIFEST.json"):
        (work / "output" / name).write_text("x")
    paths, lines = collected(work)
    assert paths == sorted(["GOOD2", "MANIFEST.json", "good", "long" * 60])
    assert lines == ["left out 2 files (output/back\\slash, output/good2): their names cannot be kept"]


@pytest.mark.parametrize(
    ("limit", "value", "expected"),
    [
        ("ENTRIES_MAX", 3, "left out the rest of output/: 3 names are the most that are looked at"),
        ("FOLDERS_MAX", 3, "left out the rest of output/: 3 folders are the most that are looked at"),
        ("DEPTH_MAX", 1, "left out 6 folders (output/0, output/1, output/2, output/3, output/4, output/5): more than"),
    ],
)
def test_a_walk_ends_at_its_limits_and_keeps_what_it_found(
    work: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, expected: str
) -> None:
    for name in range(6):
        (work / "output" / str(name)).mkdir()
    (work / "beside").write_text("b")
    monkeypatch.setattr(walking, limit, value)
    paths, lines = collected(work)
    assert lines[0].startswith(expected)
    assert len(lines[0]) < 250
    assert paths == ["beside"] or lines[-1].startswith("left out the rest of the work folder"), lines


def test_a_walk_that_takes_too_long_ends_with_what_it_found(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "output" / "late").write_text("l")
    monkeypatch.setattr(collecting, "SECONDS_MAX", -1.0)
    assert collected(work) == (
        [],
        [f"left out the rest of {of}: it took too long" for of in ("output/", "the work folder")],
    )


def test_what_must_be_copied_has_more_time_than_what_is_only_found(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "output" / "model").write_text("weights")
    forbid_links(monkeypatch)
    assert collected(work) == (["model"], [])
    monkeypatch.setattr(collecting, "COPY_SECONDS_MAX", -1.0)
    assert collected(work) == ([], ["left out 1 file (output/model): it took too long"])


def test_more_files_than_an_artifact_has_leave_the_smallest(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "FILES_PER_ARTIFACT_MAX", 2)
    for size in (3, 2, 1):
        (work / "output" / str(size)).write_bytes(b"x" * size)
    (work / "beside").write_text("b")
    paths, lines = collected(work)
    assert paths == ["1", "2"]
    assert [line.split(":")[0] for line in lines] == ["left out 1 file", "left out 1 file (beside)"]


def test_a_result_of_more_bytes_than_an_artifact_has_leaves_the_largest(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "OUTPUT_BYTES_MAX", 10)
    (work / "output" / "small").write_bytes(b"x" * 9)
    with (work / "output" / "sparse").open("wb") as out:
        out.truncate(1 << 40)
    assert collected(work)[0] == ["small"]


def test_a_long_list_of_what_is_left_out_is_short_in_the_log(work: Path) -> None:
    for number in range(1000):
        (work / "output" / f"{number:04}{'x' * 200}\\").write_text("x")
    _, (line,) = collected(work)
    assert line.startswith("left out 1000 files (output/0000x")
    assert len(line) < 2000


def test_files_that_the_agent_cannot_read_cost_themselves_alone(as_another_user: Path) -> None:
    work = as_another_user
    for name in ("closed", "open"):
        (work / "output" / name).write_text("x")
    (work / "output" / "folder").mkdir()
    (work / "output" / "closed").chmod(0)
    (work / "output" / "folder").chmod(0)
    paths, lines = collected(work)
    assert paths == ["open"]
    assert lines == [
        "left out 1 file (output/closed): cannot be read",
        "left out 1 folder (output/folder): cannot be opened",
    ]


def test_an_output_folder_that_the_agent_cannot_open_is_an_empty_one(as_another_user: Path) -> None:
    (as_another_user / "output").chmod(0)
    assert collected(as_another_user) == ([], ["nothing below output/ could be kept: Permission denied"])


@pytest.mark.parametrize("is_own", [True, False])
def test_a_full_disk_of_the_job_fails_nothing_and_one_of_the_node_does(
    work: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    (work / "output" / "a").write_text("a")
    monkeypatch.setattr(collecting, "has_disk", lambda _: is_own)
    monkeypatch.setattr(collecting, "keep_file", no_room)
    if is_own:
        assert collected(work) == ([], ["left out 1 file (output/a): the job's disk is full"])
    else:
        with pytest.raises(OSError, match="No space"):
            collected(work)


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
