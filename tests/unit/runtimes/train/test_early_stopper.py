"""Whether an evaluation is the best so far, when a training is over, and what a checkpoint may say of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from runtimes.train.callbacks.early_stop import EarlyStopper
from runtimes.train.config import EarlyStop
from runtimes.train.errors import BadCheckpoint, BadData


def observe(stopper: EarlyStopper, *losses: float) -> list[bool]:
    return [stopper.observe(step, loss) for step, loss in enumerate(losses)]


def test_training_is_over_after_patience_evaluations_without_a_better_one() -> None:
    stopper = EarlyStopper(EarlyStop(patience=2))
    assert observe(stopper, 3.0, 2.0, 2.5) == [True, True, False]
    assert not stopper.is_over
    assert not stopper.observe(3, 2.0), "the same is not better"
    assert stopper.is_over
    assert (stopper.best_loss, stopper.best_step) == (2.0, 1)


def test_better_is_lower_by_more_than_the_least_difference() -> None:
    """Of the best one, not of the one before: many small steps are an improvement once they add up."""
    stopper = EarlyStopper(EarlyStop(min_delta=0.5))
    assert observe(stopper, 3.0, 2.7, 2.5, 2.4) == [True, False, False, True]


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_loss_that_is_not_finite_is_never_the_best(loss: float) -> None:
    stopper = EarlyStopper(EarlyStop(patience=3))
    assert observe(stopper, loss, 2.0, loss, loss) == [False, True, False, False]
    assert (stopper.best_loss, stopper.since) == (2.0, 2)


@pytest.mark.parametrize("patience", [1, 2])
def test_evaluation_that_may_not_end_leaves_it_to_the_next_one(patience: int) -> None:
    stopper, again = (EarlyStopper(EarlyStop(patience=patience)) for _ in range(2))
    for step in range(5):
        stopper.observe(step, math.nan, may_end=False)
    assert not stopper.is_over
    again.load(stopper.state(), step=5)
    stopper.observe(5, math.nan)
    assert stopper.is_over


def test_training_without_a_finite_evaluation_has_no_best_one() -> None:
    stopper = EarlyStopper(EarlyStop())
    stopper.observe(0, math.nan)
    with pytest.raises(BadData, match="no evaluation had a finite loss"):
        stopper.check_learned()
    stopper.observe(1, 3.0)
    stopper.check_learned()


@pytest.mark.parametrize("losses", [(), (math.nan,), (3.0,), (3.0, 2.0, 2.1)])
def test_state_survives_a_checkpoint(losses: tuple[float, ...]) -> None:
    stopper, again = (EarlyStopper(EarlyStop(patience=3)) for _ in range(2))
    observe(stopper, *losses)
    again.load(stopper.state(), step=10)
    assert again == stopper


GOOD: dict[str, Any] = {"best_loss": 2.0, "best_step": 4, "since": 1}


@pytest.mark.parametrize(
    "planted",
    [
        None,
        [],
        {},
        GOOD | {"best_loss": math.nan},
        GOOD | {"best_loss": "2"},
        GOOD | {"best_loss": True},
        GOOD | {"best_step": 11},
        GOOD | {"best_step": -1},
        GOOD | {"best_step": True},
        GOOD | {"since": 3},
        GOOD | {"since": 1.0},
    ],
    ids=str,
)
def test_state_that_no_training_writes_is_a_bad_checkpoint(planted: object) -> None:
    stopper = EarlyStopper(EarlyStop(patience=3))
    with pytest.raises(BadCheckpoint):
        stopper.load(planted, step=10)
    assert stopper == EarlyStopper(EarlyStop(patience=3))
