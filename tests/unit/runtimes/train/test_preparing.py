"""Long work reports itself: not before its first minute, not more often than each half one, never standing still."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import EventWriter
from runtimes.train.parallel import Progress
from runtimes.train.preparing import PreparingReport, report_prepared


def written(tmp_path: Path) -> list[dict[str, Any]]:
    """The events, without their times."""
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "at"} for line in lines]


@pytest.fixture
def report(tmp_path: Path) -> PreparingReport:
    return PreparingReport(EventWriter(str(tmp_path / "events.jsonl")), "data")


def test_events_come_after_a_minute_and_then_each_half_one(report: PreparingReport) -> None:
    due = [seconds for seconds in range(0, 200, 2) if report.update(float(seconds), moves=1 + seconds)]
    assert due == [60, 90, 120, 150, 180]


def test_work_that_does_not_move_reports_nothing(report: PreparingReport, tmp_path: Path) -> None:
    assert not any(report.update(float(seconds), moves=0) for seconds in range(0, 3600, 2))
    assert report.update(3600.0, moves=1), "it moved after all"
    assert not any(report.update(float(seconds), moves=1) for seconds in range(3602, 7200, 2))
    assert written(tmp_path) == [{"event": "preparing", "what": "data", "seconds": 3600.0}]


def test_amounts_are_reported_as_far_as_they_are_known(report: PreparingReport, tmp_path: Path) -> None:
    report.update(60.0, moves=1, done=5, total=9, unit="bytes")
    report.update(90.0, moves=2, done=6)
    report.update(120.0, moves=3, total=9, unit="bytes")
    begin = {"event": "preparing", "what": "data"}
    assert written(tmp_path) == [
        begin | {"seconds": 60.0, "done": 5, "total": 9, "unit": "bytes"},
        begin | {"seconds": 90.0, "done": 6},
        begin | {"seconds": 120.0},
    ]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ""),
        ({"text": "reading"}, "reading"),
        ({"text": "reading", "done": 3}, "reading"),
        ({"done": 3000, "total": 40000, "unit": "documents"}, "3,000 of 40,000 documents"),
        ({"done": 3000}, "3,000"),
    ],
)
def test_the_log_has_the_text_or_else_the_amounts(values: dict[str, Any], words: str) -> None:
    progress = Progress()
    for name, value in values.items():
        setattr(progress, name, value)
    assert progress.words() == words


@pytest.mark.parametrize("found", [True, False])
def test_the_end_of_a_work_says_whether_it_was_found(tmp_path: Path, found: bool) -> None:
    report_prepared(EventWriter(str(tmp_path / "events.jsonl")), "data", 61.26, found=found)
    assert written(tmp_path) == [{"event": "prepared", "what": "data", "seconds": 61.3, "found": found}]
