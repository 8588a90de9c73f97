"""docs/attacks.md has a row for every attack of the threat model, and every test that it names exists."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "attacks.md"
NAMES = [f"T{number}" for number in range(1, 37)]
OPEN = {"T10", "T21", "T22"}  # not prevented, and SECURITY.md says so
ROW = re.compile(r"^\| ([A-Z]\d+) \| .+ \| .+ \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`([^`]+)::(test_\w+)`")


@functools.cache
def functions_of(file: Path) -> set[str]:
    """The names of the test functions of a file, those in classes included."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds)}


def rows() -> list[tuple[str, str]]:
    """Name and tests of each row of the page, in its order."""
    return ROW.findall(PAGE.read_text())


def test_the_page_has_one_row_for_each_attack_in_order() -> None:
    names = [name for name, _ in rows()]
    found_since = names[len(NAMES) :]
    assert names[: len(NAMES)] == NAMES
    assert found_since == [f"S{number}" for number in range(1, len(found_since) + 1)]


@pytest.mark.parametrize(("name", "tests"), [pytest.param(*row, id=row[0]) for row in rows()])
def test_every_row_names_tests_that_exist_or_is_open(name: str, tests: str) -> None:
    named = TEST.findall(tests)
    assert ("**open**" in tests) == (name in OPEN)
    assert bool(named) == (name not in OPEN), "a row either names its tests or is open"
    for file, test in named:
        assert (ROOT / file).is_file(), f"{file} is not there"
        assert test in functions_of(ROOT / file), f"{file} has no {test}"


def test_a_test_that_is_not_there_would_be_missed() -> None:
    assert "test_every_row_names_tests_that_exist_or_is_open" in functions_of(Path(__file__))
    assert "test_that_nobody_wrote" not in functions_of(Path(__file__))
