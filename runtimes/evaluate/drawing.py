"""Charts and the map as SVG. Every text that came from data is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

BAR_HEIGHT = 16
GROUP_GAP = 14
LABELS_WIDTH = 250
BARS_WIDTH = 430
VALUES_WIDTH = 130
MAP_SIZE = 560
MAP_MARGIN = 14
LABEL_CHARACTERS_MAX = 36
TITLE_CHARACTERS_MAX = 300


@dataclass(frozen=True)
class Bar:
    """One model's figure of a row; `spread` is its standard error."""

    model: int  # its number, which is its colour
    value: float
    spread: float | None


@dataclass(frozen=True)
class Point:
    """One sample on the map, from -1 to 1 either way."""

    x: float
    y: float
    verdict: str
    title: str


def cut(text: str, most: int) -> str:
    """At most so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def bar_chart(rows: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    """Bars for each row, one a model, each row on a scale of its own: to 1 where no figure is larger."""
    parts: list[str] = []
    top = 0
    for label, bars in rows:
        most = max((bar.value + (bar.spread or 0.0) for bar in bars), default=1.0)
        scale = BARS_WIDTH / (most if most > 1.0 else 1.0)
        middle = top + len(bars) * BAR_HEIGHT / 2 + 4
        name = escape(cut(label, LABEL_CHARACTERS_MAX))
        parts.append(f'<text x="{LABELS_WIDTH - 8}" y="{middle:g}" text-anchor="end">{name}</text>')
        for bar in bars:
            width = max(0.0, bar.value * scale)
            parts.append(
                f'<rect class="model{bar.model}" x="{LABELS_WIDTH}" y="{top}" width="{width:.1f}"'
                f' height="{BAR_HEIGHT - 3}"/>'
            )
            if bar.spread:
                low, high = (LABELS_WIDTH + max(0.0, bar.value + side * bar.spread) * scale for side in (-1, 1))
                y = top + (BAR_HEIGHT - 3) / 2
                parts.append(f'<path class="spread" d="M{low:.1f} {y:g}H{high:.1f}"/>')
            end = LABELS_WIDTH + max(0.0, bar.value + (bar.spread or 0.0)) * scale + 6
            parts.append(f'<text x="{end:.1f}" y="{top + 11}">{figure_text(bar.value, bar.spread)}</text>')
            top += BAR_HEIGHT
        top += GROUP_GAP
    width = LABELS_WIDTH + BARS_WIDTH + VALUES_WIDTH
    return f'<svg role="img" viewBox="0 0 {width} {max(top, 1)}" width="{width}">{"".join(parts)}</svg>'


def sample_map(points: Sequence[Point]) -> str:
    """The samples in the plane; those that changed lie over those that did not."""
    reach = MAP_SIZE / 2 - MAP_MARGIN
    ordered = sorted(points, key=lambda point: point.verdict != "kept")
    dots = "".join(
        f'<circle class="{escape(point.verdict)}" cx="{MAP_SIZE / 2 + point.x * reach:.1f}"'
        f' cy="{MAP_SIZE / 2 - point.y * reach:.1f}" r="{3 if point.verdict == "kept" else 4.5}">'
        f"<title>{escape(cut(point.title, TITLE_CHARACTERS_MAX))}</title></circle>"
        for point in ordered
    )
    return f'<svg role="img" class="map" viewBox="0 0 {MAP_SIZE} {MAP_SIZE}" width="{MAP_SIZE}">{dots}</svg>'


def figure_text(value: float, spread: float | None) -> str:
    """`0.512 ± 0.031`"""
    shown = f"{value:.4g}"
    return shown if spread is None else f"{shown} ± {spread:.2g}"
