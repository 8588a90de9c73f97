"""Which events move a job's progress."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.running.preparing import PREPARING_SECONDS_MAX
from jobs.running.progress import advance_progress
from marketplace.foundation import clock

BEGAN = datetime(2026, 11, 28, 12, tzinfo=UTC)
STARTED = {"event": "started", "steps_total": 100}


def step(number: int, loss: float = 1.0) -> dict:
    return {"event": "step", "step": number, "loss": loss}


def test_the_newest_step_shows():
    found = advance_progress({}, 1, [STARTED, step(1, 3.0), step(2, 2.0)])
    assert (found["step"], found["loss"], found["steps_total"], found["attempt"]) == (2, 2.0, 100, 1)


def test_an_early_end_leaves_nothing_to_do():
    found = advance_progress({}, 1, [STARTED, step(40), {"event": "stopped_early", "step": 40, "steps_total": 100}])
    assert (found["step"], found["steps_total"]) == (40, 40)
    again = advance_progress(found, 2, [STARTED, {"event": "resumed", "step": 30}])
    assert again["steps_total"] == 100


def test_an_older_step_does_not_move_it_back():
    found = advance_progress({}, 1, [step(5, 1.0)])
    assert advance_progress(found, 1, [step(4, 9.0)]) == found


def test_a_new_attempt_may_begin_behind_the_old_one():
    found = advance_progress({}, 1, [STARTED, step(50)])
    found = advance_progress(found, 2, [{"event": "resumed", "step": 40}, step(41)])
    assert (found["step"], found["resumed_from"], found["attempt"], found["steps_total"]) == (41, 40, 2, 100)


def test_an_older_attempt_is_ignored():
    found = advance_progress({}, 2, [step(41)])
    assert advance_progress(found, 1, [step(90)]) == found


def test_the_loss_of_an_evaluation_is_kept_apart():
    found = advance_progress({}, 1, [step(1, 3.0), {"event": "evaluated", "step": 1, "loss": 2.5}])
    assert (found["loss"], found["eval_loss"]) == (3.0, 2.5)


def preparing(seconds: float, **more: Any) -> dict:
    return {"event": "preparing", "what": "data", "seconds": seconds, **more}


def advance_at(
    monkeypatch: pytest.MonkeyPatch, seconds: float, progress: dict, *events: dict, attempt: int = 1
) -> dict:
    """The progress after these events, which come so long after BEGAN."""
    monkeypatch.setattr(clock, "now", lambda: BEGAN + timedelta(seconds=seconds))
    return advance_progress(progress, attempt, list(events))


def moved_after(progress: dict) -> float:
    return (datetime.fromisoformat(progress["preparing"]["moved_at"]) - BEGAN).total_seconds()


def test_what_is_prepared_shows_until_the_training_starts(monkeypatch):
    found = advance_at(monkeypatch, 0, {}, preparing(60.0, done=1, total=9, unit="bytes"))
    shown = found["preparing"]
    assert (shown["what"], shown["seconds"], shown["done"], shown["total"]) == ("data", 60.0, 1, 9)
    assert "preparing" not in advance_at(monkeypatch, 5, found, STARTED)
    assert "preparing" not in advance_at(monkeypatch, 5, found, step(1))


def test_an_attempt_that_prepares_shows_no_step_of_the_one_before(monkeypatch):
    found = advance_at(monkeypatch, 0, {}, preparing(60.0), STARTED, step(50))
    found = advance_at(monkeypatch, 90, found, preparing(60.0), attempt=2)
    assert "step" not in found
    assert found["preparing"]["since"] == (BEGAN + timedelta(seconds=90)).isoformat()
    assert "preparing" not in advance_at(monkeypatch, 95, found, step(1), attempt=3)


def test_only_what_changes_moves(monkeypatch):
    found = advance_at(monkeypatch, 0, {}, preparing(60.0))
    found = advance_at(monkeypatch, 30, found, preparing(90.0))
    assert moved_after(found) == 30, "of work whose amount is unknown its time is believed"
    assert advance_at(monkeypatch, 60, found, preparing(90.0)) == found
    found = advance_at(monkeypatch, 60, found, preparing(120.0, done=5, unit="bytes"))
    assert moved_after(found) == 60
    assert advance_at(monkeypatch, 90, found, preparing(150.0, done=5, unit="bytes")) == found, "it only counts seconds"
    found = advance_at(monkeypatch, 120, found, preparing(180.0, done=6, unit="bytes"))
    assert moved_after(found) == 120


def test_after_a_day_nothing_counts_as_a_move(monkeypatch):
    found = advance_at(monkeypatch, 0, {}, preparing(60.0))
    found = advance_at(monkeypatch, PREPARING_SECONDS_MAX, found, preparing(90.0))
    assert moved_after(found) == PREPARING_SECONDS_MAX
    assert advance_at(monkeypatch, PREPARING_SECONDS_MAX + 1, found, preparing(120.0)) == found
