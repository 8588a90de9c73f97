"""Time series drawn as inline SVG: a line of means and a band up to the highest, no script, no library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from marketplace.nodes.models import Metric

WIDTH, HEIGHT, PAD = 300, 60, 4
CHARTS_MAX = 64
Point = tuple[float, float, float]  # seconds since 1970, mean, highest


def draw_all(rows: Sequence[Metric]) -> SafeString:
    """A chart a series, by name; a sentence where there is nothing yet."""
    series: defaultdict[str, list[Point]] = defaultdict(list)
    for row in rows:
        for name, (mean, highest) in row.values.items():
            series[name].append((row.at.timestamp(), float(mean), float(highest)))
    if not series:
        return mark_safe("Nothing was measured yet.")
    drawn = ((_draw(name, points),) for name, points in sorted(series.items())[:CHARTS_MAX])
    return format_html('<div style="display:flex;flex-wrap:wrap;gap:12px">{}</div>', format_html_join("", "{}", drawn))


def _draw(name: str, points: list[Point]) -> SafeString:
    top = max(highest for _, _, highest in points)
    low = min(0.0, *(mean for _, mean, _ in points))
    begin, end = points[0][0], points[-1][0]

    def place(at: float, value: float) -> str:
        x = PAD + (WIDTH - 2 * PAD) * ((at - begin) / (end - begin) if end > begin else 1.0)
        y = HEIGHT - PAD - (HEIGHT - 2 * PAD) * ((value - low) / (top - low) if top > low else 0.0)
        return f"{x:.1f},{y:.1f}"

    line = " ".join(place(at, mean) for at, mean, _ in points)
    over = " ".join(place(at, highest) for at, _, highest in reversed(points))
    return format_html(
        '<figure style="margin:0"><figcaption>{} <b>{}</b> (highest {})</figcaption>'
        '<svg role="img" aria-label="{}" width="{}" height="{}" viewBox="0 0 {} {}">'
        '<polygon points="{} {}" fill="currentColor" opacity="0.15"/>'
        '<polyline points="{}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg></figure>',
        *(name, f"{points[-1][1]:g}", f"{top:g}", name, WIDTH, HEIGHT, WIDTH, HEIGHT, line, over, line),
    )
