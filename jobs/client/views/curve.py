"""A job's curve for people: a series a line, drawn as wide as the terminal lets it, with its newest and best figure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.text import Text

from jobs.client.output import table
from jobs.client.tables import GAP
from jobs.wire import CurvePointView, JobCurve

BLOCKS: Final = "▁▂▃▄▅▆▇█"
BLOCKS_ASCII: Final = "_.:-=+*#"  # for a terminal that knows no others
DRAWN_CHARACTERS_MIN: Final = 8
DRAWN_CHARACTERS_MAX: Final = 48
COLUMNS: Final = ("series", "", "newest", "best", "at step")
# Which figure of a series is the best one, by the last part of its name; of others neither is.
LOWEST_IS_BEST: Final = frozenset({"loss", "perplexity", "error", "wer", "mae", "mse"})
HIGHEST_IS_BEST: Final = frozenset({"mfu", "accuracy", "acc", "f1", "bleu", "reward", "score", "auc"})
# Series of a training that are named by what they are counted in.
LOWEST_NAMES: Final = frozenset({"seconds_per_step"})
HIGHEST_NAMES: Final = frozenset({"tokens_per_second"})
_SEPARATORS: Final = re.compile(r"[_/.-]")


def curve_view(curve: JobCurve, console: Console) -> RenderableType:
    """Every series of the whole run, as wide as `console`, and where attempts went on."""
    blocks = BLOCKS_ASCII if console.options.ascii_only else BLOCKS
    facts = [(escape(series.name), *_facts(series.name, series.points)) for series in curve.series]
    widths = [max(len(cell) for cell in column) for column in zip((COLUMNS[0], *COLUMNS[2:]), *facts, strict=True)]
    left = console.width - sum(widths) - GAP * (len(COLUMNS) - 1)
    width = max(DRAWN_CHARACTERS_MIN, min(left, DRAWN_CHARACTERS_MAX))
    rows = [
        (name, sparkline(series.points, width, blocks), *rest)
        for series, (name, *rest) in zip(curve.series, facts, strict=True)
    ]
    parts: list[RenderableType] = [table("", COLUMNS, rows, right=("newest", "best", "at step"))]
    parts += [Text(line, style="dim") for line in _remarks(curve)]
    return Group(*parts)


def sparkline(points: Sequence[CurvePointView], width: int, blocks: str = BLOCKS) -> str:
    """At most `width` characters, each the mean of its steps: from the first of `blocks`, the lowest, to the last.

    Where there are more points than characters, each character has equally many steps; a space is one without figures.
    """
    means = [point.mean for point in points] if len(points) <= width else _resample(points, width)
    known = [mean for mean in means if mean is not None]
    low, high = min(known), max(known)
    top = len(blocks) - 1
    return "".join(
        " " if mean is None else blocks[round((mean - low) / (high - low) * top) if high > low else 0] for mean in means
    )


def _resample(points: Sequence[CurvePointView], width: int) -> list[float | None]:
    """The mean of each of `width` equal parts of the steps; None for one without figures."""
    first, last = points[0].first_step, points[-1].last_step
    sums, counts = [0.0] * width, [0] * width
    for point in points:
        part = (point.first_step - first) * width // (last - first + 1)
        sums[part] += point.mean * point.count
        counts[part] += point.count
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def _facts(name: str, points: Sequence[CurvePointView]) -> tuple[str, str, str]:
    """The newest figure, the best one, and the steps at which that was."""
    newest = _figure(points[-1].newest)
    last = _SEPARATORS.split(name.lower())[-1]
    if last in LOWEST_IS_BEST or name in LOWEST_NAMES:
        best = min(points, key=lambda point: point.lowest)
        return newest, _figure(best.lowest), _steps(best)
    if last in HIGHEST_IS_BEST or name in HIGHEST_NAMES:
        best = max(points, key=lambda point: point.highest)
        return newest, _figure(best.highest), _steps(best)
    return newest, "-", "-"


def _remarks(curve: JobCurve) -> list[str]:
    begins: dict[int, int] = {}
    for series in curve.series:
        for point in series.points:
            begins[point.attempt] = min(point.first_step, begins.get(point.attempt, point.first_step))
    last = max(series.points[-1].last_step for series in curve.series)
    lines = [f"up to step {last:,}" + (f"; a point is {curve.stride:,} steps" if curve.stride > 1 else "")]
    if len(begins) > 1:
        lines.append(", ".join(f"attempt {attempt} from step {begins[attempt]:,}" for attempt in sorted(begins)))
    if curve.has_more_names:
        lines.append("The program named more series than are kept.")
    return lines


def _steps(point: CurvePointView) -> str:
    return f"{point.first_step:,}" + (f"-{point.last_step:,}" if point.last_step > point.first_step else "")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"
