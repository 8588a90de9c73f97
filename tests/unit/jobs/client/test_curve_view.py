"""A job's curve on terminals: drawn as wide as they are, in plain characters where they know no others."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from jobs.client.views.curve import BLOCKS_ASCII, curve_view, sparkline
from jobs.wire import CurvePointView, CurveSeries, JobCurve


def point(step: int, value: float, *, attempt: int = 1, steps: int = 1) -> CurvePointView:
    figures = dict.fromkeys(("mean", "lowest", "highest", "newest"), value)
    return CurvePointView(attempt=attempt, first_step=step, last_step=step + steps - 1, count=steps, **figures)


def curve(stride: int = 1, *, has_more_names: bool = False, **series: list[CurvePointView]) -> JobCurve:
    made = [CurveSeries(name=name, points=points) for name, points in series.items()]
    return JobCurve(stride=stride, series=made, has_more_names=has_more_names)


def shown(found: JobCurve, width: int = 80, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    console.print(curve_view(found, console))
    out.flush()
    return raw.getvalue().decode(encoding)


LONG = curve(
    16,
    loss=[point(step * 16, 4.0 - step / 300, steps=16) for step in range(900)],
    evaluation_loss=[point(800, 3.0), point(1600, 2.0), point(2400, 2.5)],
    tokens_per_second=[point(step * 16, 5e5, steps=16) for step in range(900)],
    learning_rate=[point(0, 1e-4), point(16, 3e-4)],
)


@pytest.mark.parametrize("width", [20, 40, 80, 100, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_curve_fits_a_terminal_of_any_width(width: int, encoding: str) -> None:
    text = shown(LONG, width, encoding)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for word in ("loss", "evaluation_loss", "1.003", "2.5", "14,384-14,399", "1,600", "500,000"):
        assert word in text.replace("\n", "").replace(" ", "")


def test_at_80_columns_each_series_is_one_line() -> None:
    lines = shown(LONG).splitlines()
    assert len(lines) == 1 + 4 + 1
    assert lines[1].split()[0] == "loss"
    assert [lines[1].count(block) > 0 for block in "▁█"] == [True, True]
    assert lines[-1].strip() == "up to step 14,399; a point is 16 steps"


def test_a_terminal_without_unicode_gets_plain_characters() -> None:
    text = shown(LONG, encoding="ascii")
    assert "#" in text and "_" in text


def test_a_sparkline_is_high_where_the_figure_is() -> None:
    assert sparkline([point(1, 0.0), point(2, 3.5), point(3, 7.0)], 10) == "▁▅█"
    assert sparkline([point(1, 5.0), point(2, 5.0)], 10) == "▁▁"


def test_a_long_one_is_drawn_by_equal_parts_of_its_steps() -> None:
    rising = [point(step, float(step)) for step in range(80)]
    assert sparkline(rising, 8, BLOCKS_ASCII) == BLOCKS_ASCII
    gap = [each for each in rising if not 40 <= each.first_step < 50]
    assert sparkline(gap, 8, BLOCKS_ASCII) == "_.:- +*#"


def test_the_best_is_the_lowest_loss_and_the_highest_accuracy_at_its_step() -> None:
    found = curve(val_loss=[point(1, 2.0), point(5, 1.0), point(9, 3.0)], accuracy=[point(1, 0.5), point(7, 0.25)])
    loss, accuracy = (line.split() for line in shown(found).splitlines()[1:3])
    assert (loss[0], loss[-3:]) == ("val_loss", ["3", "1", "5"])
    assert (accuracy[0], accuracy[-3:]) == ("accuracy", ["0.25", "0.5", "1"])


@pytest.mark.parametrize("name", ["laser", "gloss", "underscore", "loss_scale", "my_tokens_per_second"])
def test_a_name_that_only_ends_like_a_word_has_no_best(name: str) -> None:
    assert shown(curve(**{name: [point(1, 2.0), point(5, 1.0)]})).splitlines()[1].split()[-2:] == ["-", "-"]


@pytest.mark.parametrize(
    "name", ["loss", "eval/loss", "x.loss", "b-loss", "val_Loss", "word_error", "seconds_per_step"]
)
def test_the_last_part_of_a_name_says_that_the_lowest_is_best(name: str) -> None:
    assert shown(curve(**{name: [point(1, 2.0), point(5, 1.0)]})).splitlines()[1].split()[-2:] == ["1", "5"]


def test_a_curve_says_where_attempts_went_on_and_what_is_left_out() -> None:
    found = curve(loss=[point(1, 2.0), point(40, 1.0), point(41, 1.0, attempt=3)], has_more_names=True)
    text = shown(found)
    assert "attempt 1 from step 1, attempt 3 from step 41" in text
    assert "more series than are kept" in text
