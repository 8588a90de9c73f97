"""Every promise about money and every attack on the contract has a test by its name, and a page lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "money-proofs.md"
NAMES = [*(f"P{n}" for n in range(1, 27)), *(f"C{n}" for n in range(1, 19))]
ROW = re.compile(r"^\| ([PC]\d+) \| .+ \| (.+) \|$", re.MULTILINE)


def is_named(name: str, text: str) -> bool:
    """As P6, or as _P06_ or _p06_ in the name of a test."""
    kind, number = name[0], int(name[1:])
    return re.search(rf"(?<![A-Za-z0-9])[{kind}{kind.lower()}]0?{number}(?![A-Za-z0-9])", text) is not None


def files_that_name(name: str) -> list[Path]:
    here = Path(__file__).resolve()
    return [path for path in (ROOT / "tests").rglob("test_*.py") if path != here and is_named(name, path.read_text())]


@pytest.mark.parametrize("name", NAMES)
def test_each_has_a_test_by_its_name(name: str) -> None:
    assert files_that_name(name), f"no test says that it is of {name}"


@pytest.mark.parametrize("name", NAMES)
def test_the_page_names_each_and_what_it_names_says_so_itself(name: str) -> None:
    rows = dict(ROW.findall(PAGE.read_text()))
    assert name in rows, f"{PAGE.name} has no row of {name}"
    files = re.findall(r"`([^`]+)`", rows[name])
    assert files, f"the row of {name} names no file"
    for file in files:
        assert (ROOT / file).is_file(), f"{file} is not there"
    assert any(is_named(name, (ROOT / file).read_text()) for file in files), f"none of {files} mentions {name}"


def test_a_name_is_distinguished_from_a_longer_one() -> None:
    assert is_named("P6", "def test_P06_once")
    assert is_named("P18", "def test_p18_any_stream")
    assert not is_named("P2", "test_P22_nonces; P20")
    assert not is_named("C1", "C18, C10")
