"""A target of the Makefile that runs one kind of tests names the folders where they are: none lies elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ELSEWHERE = {"docker": ["tests/acceptance"]}  # `make acceptance` runs these


@pytest.mark.parametrize("marker", ["docker", "anvil", "escrow_model", "money_model"])
def test_marked_tests_are_where_their_target_looks(marker: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    variables = dict(re.findall(r"^(\w+) :?= (.+)$", makefile, re.MULTILINE))
    (given,) = re.findall(rf" -m {marker} (tests/.+|\$\(\w+\))(?: \$\(REPORT\))?$", makefile, re.MULTILINE)
    named = re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], given).split()
    places = [ROOT / place for place in (*named, *ELSEWHERE.get(marker, []))]
    marked = [path for path in (ROOT / "tests").rglob("*.py") if f"mark.{marker}" in path.read_text()]
    assert marked
    assert [path for path in marked if not any(path.is_relative_to(place) for place in places)] == []
