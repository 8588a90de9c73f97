"""Answers are kept by the digest of model and request, and a file that a kill cut short goes on where it was whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtimes.contract import checkpoint_step, complete_checkpoints, read_manifest
from runtimes.evaluate.answers import ANSWERS_FILE, Answers
from runtimes.evaluate.request import GENERATE, LIKELIHOOD, Request, rounded
from runtimes.train.errors import BadCheckpoint

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def filled(path: Path) -> Answers:
    answers = Answers(path)
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
    again = Answers(path)
    assert (len(again), A in again, B in again) == (1, True, False)
    again.add(B, "anew")
    again.close()
    assert [json.loads(line)["answer"] for line in path.read_text().split("\n")[:-1]] == [[-1.5, True], "anew"]


def test_a_checkpoint_has_all_answers_and_a_new_folder_goes_on_from_it(tmp_path: Path) -> None:
    answers = filled(tmp_path / ANSWERS_FILE)
    folder = answers.save(tmp_path / "checkpoint", keep=2, world_size=3)
    manifest = read_manifest(folder)
    assert (checkpoint_step(folder), manifest["step"], manifest["world_size"]) == (2, 2, 3)
    resumed = Answers(tmp_path / "other.jsonl", resume_from=folder)
    assert (len(resumed), resumed.resumed, resumed[A]) == (2, 2, [-1.5, True])
    resumed.close()
    assert (tmp_path / "other.jsonl").read_bytes() == (folder / ANSWERS_FILE).read_bytes()


def test_only_the_newest_checkpoints_stay(tmp_path: Path) -> None:
    answers = Answers(tmp_path / ANSWERS_FILE)
    for number, digest in enumerate((A, B, C), start=1):
        answers.add(digest, number)
        answers.save(tmp_path / "checkpoint", keep=2, world_size=1)
    assert [checkpoint_step(each) for each in complete_checkpoints(tmp_path / "checkpoint")] == [2, 3]


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]\n", b'{"request": "x", "answer": 1}\n', b'{"request": "' + b"a" * 64 + b'"}\n', b"[" * 99 + b"\n"],
)
def test_a_checkpoint_with_a_line_that_is_no_answer_is_refused(tmp_path: Path, line: bytes) -> None:
    (tmp_path / ANSWERS_FILE).write_bytes(line)
    with pytest.raises(BadCheckpoint, match="line 1 is no answer"):
        Answers(tmp_path / "own.jsonl", resume_from=tmp_path)


def test_a_checkpoint_without_answers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match="cannot be read"):
        Answers(tmp_path / "own.jsonl", resume_from=tmp_path / "none")
