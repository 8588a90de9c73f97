"""Answers are kept by the digest of model and request, and a file that a kill cut short goes on where it was whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import checkpoint_step, complete_checkpoints, read_manifest, write_manifest
from runtimes.evaluate.answers import ANSWERS_FILE, LINE_BYTES_MIN, Answers
from runtimes.evaluate.request import EMBED, GENERATE, LIKELIHOOD, PROJECTED, ROLLING, Request, rounded
from runtimes.train.errors import BadCheckpoint

A, B, C, D = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)
WANTED = {A: LIKELIHOOD, B: GENERATE, C: ROLLING, D: EMBED}


def filled(path: Path) -> Answers:
    answers = Answers(path, WANTED)
    answers.add(A, [-1.5, True])
    answers.add(B, "text \u2028 with a strange end of line")
    answers.flush()
    return answers


def test_a_request_to_another_model_is_another_one() -> None:
    request = Request(LIKELIHOOD, ("context", " continuation"))
    assert request.digest("one") == Request(LIKELIHOOD, ("context", " continuation")).digest("one")
    others = [
        request.digest("other"),
        Request(LIKELIHOOD, ("context ", "continuation")).digest("one"),
        Request(GENERATE, ("context", " continuation")).digest("one"),
    ]
    assert len({request.digest("one"), *others}) == 4


def test_no_score_is_a_negative_zero() -> None:
    assert str(rounded(-0.00001)) == "0.0"
    assert rounded(-1.23456) == -1.235


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_line_that_a_kill_cut_short_is_computed_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / ANSWERS_FILE
    filled(path).close()
    path.write_bytes(path.read_bytes()[:-cut])
    again = Answers(path, WANTED)
    assert (len(again), A in again, B in again) == (1, True, False)
    again.add(B, "anew")
    again.close()
    assert [json.loads(line)["answer"] for line in path.read_text().split("\n")[:-1]] == [[-1.5, True], "anew"]


def test_a_checkpoint_has_all_answers_and_a_new_folder_goes_on_from_it(tmp_path: Path) -> None:
    answers = filled(tmp_path / ANSWERS_FILE)
    folder = answers.save(tmp_path / "checkpoint", keep=2, world_size=3)
    manifest = read_manifest(folder)
    assert (checkpoint_step(folder), manifest["step"], manifest["world_size"]) == (2, 2, 3)
    resumed = Answers(tmp_path / "other.jsonl", WANTED, resume_from=folder)
    assert (len(resumed), resumed.resumed, resumed[A]) == (2, 2, [-1.5, True])
    resumed.close()
    assert (tmp_path / "other.jsonl").read_bytes() == (folder / ANSWERS_FILE).read_bytes()


def test_only_the_newest_checkpoints_stay(tmp_path: Path) -> None:
    answers = Answers(tmp_path / ANSWERS_FILE, WANTED)
    for digest in (A, B, C):
        answers.add(digest, "text")
        answers.save(tmp_path / "checkpoint", keep=2, world_size=1)
    assert [checkpoint_step(each) for each in complete_checkpoints(tmp_path / "checkpoint")] == [2, 3]


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]\n", b'{"request": "x", "answer": 1}\n', b'{"request": "' + b"a" * 64 + b'"}\n', b"[" * 99 + b"\n"],
)
def test_a_checkpoint_with_a_line_that_is_no_answer_is_refused(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(BadCheckpoint, match="line 1 is no answer"):
        Answers(tmp_path / "own.jsonl", WANTED, resume_from=checkpoint(tmp_path / "saved", line, step=1))


@pytest.mark.parametrize(
    ("digest", "answer"),
    [
        (A, None),
        (A, [-1.5, 1]),
        (A, [float("nan"), True]),
        (A, [0.5, True]),
        (B, 7),
        (C, float("-inf")),
        (C, -1e300),
        (C, True),
        (D, [0.5] * (PROJECTED - 1)),
        (D, [None] * PROJECTED),
        ("e" * 64, "to what nobody asks"),
    ],
)
def test_an_answer_that_its_request_cannot_have_is_refused(tmp_path: Path, digest: str, answer: Any) -> None:
    with pytest.raises(BadCheckpoint, match="line 2 answers nothing that is asked"):
        lines = line_of(B if digest != B else A, "text" if digest != B else [-1.0, True]) + line_of(digest, answer)
        Answers(tmp_path / "own.jsonl", WANTED, resume_from=checkpoint(tmp_path / "saved", lines, step=2))


def test_every_kind_of_answer_is_taken_from_a_checkpoint(tmp_path: Path) -> None:
    given = {A: [-1.5, True], B: "", C: 0.0, D: [0.5] * PROJECTED}
    lines = b"".join(line_of(digest, answer) for digest, answer in given.items())
    resumed = Answers(tmp_path / "own.jsonl", WANTED, resume_from=checkpoint(tmp_path / "saved", lines, step=4))
    assert {digest: resumed[digest] for digest in given} == given
    assert len(line_of(B, "")) == LINE_BYTES_MIN == min(map(len, lines.splitlines(keepends=True)))


@pytest.mark.parametrize(("lines", "step"), [(0, 500_000), (1, 2), (1, 0), (1, None)])
def test_a_checkpoint_with_other_than_its_steps_is_refused(tmp_path: Path, lines: int, step: int | None) -> None:
    saved = checkpoint(tmp_path / "saved", line_of(B, "text") * lines, step=step)
    with pytest.raises(BadCheckpoint, match=f"is said to have {step} answers, and has {lines}"):
        Answers(tmp_path / "own.jsonl", WANTED, resume_from=saved)


def test_one_answer_many_times_is_not_many_answers(tmp_path: Path) -> None:
    saved = checkpoint(tmp_path / "saved", line_of(B, "text") * 2, step=2)
    with pytest.raises(BadCheckpoint, match="line 2 answers a request again"):
        Answers(tmp_path / "own.jsonl", WANTED, resume_from=saved)


def test_a_checkpoint_without_answers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match="cannot be read"):
        Answers(tmp_path / "own.jsonl", WANTED, resume_from=tmp_path / "none")


def line_of(digest: str, answer: Any) -> bytes:
    return json.dumps({"request": digest, "answer": answer}, separators=(",", ":")).encode() + b"\n"


def checkpoint(folder: Path, lines: bytes, *, step: int | None) -> Path:
    folder.mkdir()
    (folder / ANSWERS_FILE).write_bytes(lines)
    write_manifest(folder, step=step)
    return folder
