"""What the command shows of a job before its first step."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.client.views.job import progress_text
from jobs.client.watch import _bar_counts
from jobs.wire import JobView

PREPARING = {"what": "data", "seconds": 245.2, "done": 3_200_000_000, "total": 30_000_000_000, "unit": "bytes"}


def view(state: str, progress: dict[str, Any]) -> JobView:
    fields: dict[str, Any] = {"state": state, "progress": progress}
    return JobView.model_construct(**fields)


def job(state: str = "running", **preparing: Any) -> JobView:
    return view(state, {"attempt": 1, "preparing": preparing, "loss": 3.0})


@pytest.mark.parametrize(
    ("preparing", "text"),
    [
        (PREPARING, "preparing: data, 3.2 GB of 30.0 GB, 4m 5s"),
        (PREPARING | {"total": None}, "preparing: data, 3.2 GB, 4m 5s"),
        (PREPARING | {"unit": "documents", "total": None}, "preparing: data, 3,200,000,000 documents, 4m 5s"),
        (PREPARING | {"done": 5, "total": 9000, "unit": None}, "preparing: data, 5 of 9,000, 4m 5s"),
        ({"what": "tokenizer", "seconds": 60.0}, "preparing: tokenizer, 1m"),
        ({"what": "[red]x", "unit": ["a"], "done": "5"}, "preparing: \\[red]x"),
    ],
)
def test_a_job_that_prepares_says_what_and_how_far(preparing: dict[str, Any], text: str) -> None:
    assert progress_text(job(**preparing)) == text


@pytest.mark.parametrize(("state", "is_shown"), [("placed", True), ("running", True), ("recovering", False)])
def test_an_attempt_that_has_ended_prepares_nothing(state: str, is_shown: bool) -> None:
    assert ("preparing" in progress_text(job(state, **PREPARING))) is is_shown


def test_the_bar_shows_what_is_prepared() -> None:
    assert _bar_counts(job(**PREPARING)) == (3_200_000_000, 30_000_000_000)
    assert _bar_counts(job(what="data", seconds=60.0)) == (0, None)
    assert _bar_counts(job("failed", **PREPARING)) == (0, None)
    assert _bar_counts(view("running", {"step": 3, "steps_total": 9})) == (3, 9)
