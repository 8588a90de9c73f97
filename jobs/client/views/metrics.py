"""Figures of a job for people: a series a line, with its newest value, its mean and its highest."""

from __future__ import annotations

from collections import defaultdict

from rich.console import RenderableType
from rich.markup import escape

from jobs.client.output import ago, table
from jobs.wire import JobMetrics, MetricsPoint


def metrics_view(found: JobMetrics) -> RenderableType:
    """Every series of every node's part of the job; each value is [mean, highest] of its minute or hour."""
    series: dict[tuple[int, int, str], list[MetricsPoint]] = defaultdict(list)
    for point in found.points:
        for name, value in point.values.items():
            if value:
                series[point.attempt, point.node_rank, name].append(point)
    rows = []
    for (attempt, rank, name), points in sorted(series.items()):
        seconds = sum(point.seconds for point in points)
        mean = sum(point.values[name][0] * point.seconds for point in points) / max(1, seconds)
        highest = max(point.values[name][-1] for point in points)
        newest = points[-1]
        figures = (_figure(newest.values[name][0]), _figure(mean), _figure(highest))
        rows.append((str(attempt), str(rank), escape(name), *figures, ago(newest.at)))
    columns = ("attempt", "node", "series", "newest", "mean", "highest", "measured")
    return table("", columns, rows, right=("attempt", "node", "newest", "mean", "highest"))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
