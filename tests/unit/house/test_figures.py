"""Figures in the pages are those of the committed results."""

from __future__ import annotations

import pytest

from benchmarks import figures

PAGES = ["README.md", "benchmarks/README.md"]


@pytest.mark.parametrize("name", PAGES)
def test_a_pages_figures_are_those_of_the_results(name: str) -> None:
    page = figures.ROOT / name
    assert figures.rendered(page) == page.read_text(), "run: python -m benchmarks.figures"


def test_a_figure_that_was_typed_by_hand_is_found(tmp_path) -> None:
    text = (figures.ROOT / "README.md").read_text()
    drifted = tmp_path / "README.md"
    drifted.write_text(text.replace(figures.END, "| made up | 0 % | - | - |\n" + figures.END))
    assert figures.rendered(drifted) != drifted.read_text()
