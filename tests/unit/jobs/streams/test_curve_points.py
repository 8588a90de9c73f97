"""What is believed of an event's figures, and how points of a curve become fewer."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.running.curve_points import (
    STEP_MAX,
    VALUE_MAX,
    Point,
    merge_points,
    read_readings,
    read_step,
    single_point,
    widen,
)


def step_event(**fields: Any) -> dict[str, Any]:
    return {"event": "step", "step": 1, **fields}


def test_a_step_has_the_series_of_a_training_and_its_own():
    event = step_event(loss=2.5, tokens=9, seconds=0.5, skipped=1, metrics={"accuracy": 0.5, "val/F1.x": 1})
    assert read_readings(event) == {"loss": 2.5, "seconds_per_step": 0.5, "accuracy": 0.5, "val/F1.x": 1.0}


def test_the_loss_of_an_evaluation_is_a_series_of_its_own():
    assert read_readings({"event": "evaluated", "step": 1, "loss": 2}) == {"evaluation_loss": 2.0}


def test_a_figure_of_an_evaluation_is_not_the_trainings_of_that_name():
    figures = {"accuracy": 0.5, "a" * 40: 1, "a" * 41: 1}
    found = read_readings({"event": "evaluated", "step": 1, "loss": 2, "metrics": figures})
    assert found == {"evaluation_loss": 2.0, "evaluation_accuracy": 0.5, "evaluation_" + "a" * 40: 1.0}


@pytest.mark.parametrize("kind", ["started", "sampled", "resumed", None, 7, ["step"], {"step": 1}])
def test_other_events_have_no_figures(kind: object):
    assert read_readings({"event": kind, "step": 1, "loss": 1.0, "metrics": {"a": 1}}) == {}


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", '"1"', "null", "true", "[1]", "{}", "1e31", "-1e31", "1e999", "9" * 4000]
)
def test_what_is_no_figure_is_left_out(text: str):
    event = json.loads(f'{{"event":"step","step":1,"loss":{text},"mfu":0.5,"metrics":{{"own":{text},"good":1}}}}')
    assert read_readings(event) == {"mfu": 0.5, "good": 1.0}


@pytest.mark.parametrize("name", ["", "1a", "_a", "a b", "a\n", "é", "a" * 41, "<b>", "a\x00", "a\x1b[31m"])
def test_a_name_that_none_can_have_is_left_out(name: str):
    assert read_readings(step_event(metrics={name: 1.0, "good": 2.0})) == {"good": 2.0}


@pytest.mark.parametrize("own", [None, [], "loss", 7, {"a": {"b": 1}}])
def test_figures_that_are_no_table_are_left_out(own: object):
    assert read_readings(step_event(loss=1.0, metrics=own)) == {"loss": 1.0}


@pytest.mark.parametrize("step", [-1, 10**30, STEP_MAX + 1, 1.0, "1", None, True, float("nan"), [1]])
def test_a_step_that_cannot_be_is_none(step: object):
    assert read_step({"event": "step", "step": step}) is None


def test_the_first_and_the_last_possible_step_are_steps():
    assert [read_step({"step": step}) for step in (0, STEP_MAX)] == [0, STEP_MAX]


def point(step: int, value: float, attempt: int = 1) -> Point:
    return single_point(attempt, step, {"loss": value})


def test_a_point_of_two_steps_holds_both():
    both = merge_points(point(1, 4.0), point(2, 1.0, attempt=2))
    assert (both.attempt, both.first_step, both.last_step) == (2, 1, 2)
    assert both.series["loss"].as_list() == [2, 2.5, 1.0, 4.0, 1.0]


def test_figures_of_any_size_have_a_finite_mean():
    both = merge_points(point(1, VALUE_MAX), point(2, -VALUE_MAX))
    assert both.series["loss"].as_list() == [2, 0.0, -VALUE_MAX, VALUE_MAX, -VALUE_MAX]


def test_a_series_that_is_rare_stays_in_its_points():
    wide, _ = widen({0: point(0, 1.0), 1: single_point(1, 1, {"evaluation_loss": 2.0})}, 1, 1)
    assert {name: figures.count for name, figures in wide[0].series.items()} == {"loss": 1, "evaluation_loss": 1}


@given(st.lists(st.integers(0, STEP_MAX), min_size=1, max_size=60), st.integers(1, 20))
def test_widening_loses_no_figure_and_keeps_order(steps: list[int], points_max: int):
    points: dict[int, Point] = {}
    for step in steps:
        points[step] = merge_points(points[step], point(step, 1.0)) if step in points else point(step, 1.0)
    wide, stride = widen(points, 1, points_max)
    assert len(wide) <= points_max
    assert sum(each.series["loss"].count for each in wide.values()) == len(steps)
    ordered = [wide[bucket] for bucket in sorted(wide)]
    assert all(each.last_step < after.first_step for each, after in itertools.pairwise(ordered))
    for bucket, each in wide.items():
        assert bucket * stride <= each.first_step <= each.last_step < (bucket + 1) * stride
