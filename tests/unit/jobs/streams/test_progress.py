"""Which events move a job's progress."""

from __future__ import annotations

from jobs.running.progress import advance_progress

STARTED = {"event": "started", "steps_total": 100}


def step(number: int, loss: float = 1.0) -> dict:
    return {"event": "step", "step": number, "loss": loss}


def test_the_newest_step_shows():
    found = advance_progress({}, 1, [STARTED, step(1, 3.0), step(2, 2.0)])
    assert (found["step"], found["loss"], found["steps_total"], found["attempt"]) == (2, 2.0, 100, 1)


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
