"""No test is left out by every target of the Makefile."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_test_with_a_container_is_where_make_containers_looks() -> None:
    listed = re.search(r"^CONTAINERS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert listed is not None
    folders = [ROOT / folder for folder in (*listed[1].split(), "tests/acceptance")]
    marked = [path for path in (ROOT / "tests").rglob("*.py") if "mark." + "docker" in path.read_text()]
    assert len(marked) > 10
    assert [path for path in marked if not any(path.is_relative_to(folder) for folder in folders)] == []
