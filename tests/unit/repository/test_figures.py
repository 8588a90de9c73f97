"""Figures in the pages are those of the committed results."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import figures


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: str(page.relative_to(figures.ROOT)))
def test_a_pages_figures_are_those_of_the_results(page: Path) -> None:
    assert figures.rendered(page, figures.PAGES[page]) == page.read_text(), "run: python -m benchmarks.figures"


def test_a_figure_that_was_typed_by_hand_is_found(tmp_path: Path) -> None:
    text = (figures.ROOT / "README.md").read_text()
    drifted = tmp_path / "README.md"
    drifted.write_text(text.replace(figures.END, "| made up | 0 % | - |\n" + figures.END))
    assert figures.rendered(drifted, figures.IN_SHORT) == text
