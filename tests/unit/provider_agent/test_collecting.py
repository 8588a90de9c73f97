"""What a program made or changed beside output/ is kept; what it was given, and what cannot be kept, is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from provider_agent.lease import collecting
from provider_agent.lease.collecting import collect_beside, record_given


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


def collected(work: Path, patterns: list[str] | None = None) -> tuple[list[str], list[str]]:
    """The paths that were added to an output, and the lines of the log."""
    into = work.parent / "snapshot"
    into.mkdir(exist_ok=True)
    lines = collect_beside(work, work.parent, into, patterns=patterns)
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
    assert lines[1].startswith("left out 1 file (huge): 0 GiB beside output/ are the most without `outputs:`")
    assert collected(work, ["huge"])[0] == ["a", "b", "huge"], "a pattern of the job file has no such limit"


def test_a_name_that_output_has_already_comes_below_work(work: Path) -> None:
    snapshot = work.parent / "snapshot"
    snapshot.mkdir()
    (snapshot / "model.pt").write_text("of output/")
    (work / "MODEL.pt").write_text("beside")
    assert collected(work)[0] == ["model.pt", "work/MODEL.pt"]
    assert (snapshot / "model.pt").read_text() == "of output/"


def test_names_that_no_artifact_may_have_cost_themselves_alone(work: Path) -> None:
    (work / "good").write_text("x")
    (work / "back\\slash").write_text("x")
    (work / "bell\x07").write_text("x")
    (Path(os.fsdecode(bytes(work) + b"/\xff\xfe"))).write_text("x")
    paths, lines = collected(work)
    assert paths == ["good"]
    assert lines[1].startswith("left out 3 files (")
    assert "\x07" not in lines[1]


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
