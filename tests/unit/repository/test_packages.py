"""The docstring of a package lists its modules and what happens in each."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULES_MAX = 25
TOP_PACKAGES = ("marketplace", "jobs", "billing", "provider_agent", "runtimes", "benchmarks/setups")


def packages_of(root: str) -> list[str]:
    """Every package below it but those whose files Django finds by their place."""
    folders = [path.parent.relative_to(ROOT) for path in (ROOT / root).rglob("__init__.py")]
    return sorted(str(each) for each in folders if not {"migrations", "management"} & set(each.parts))


@pytest.mark.parametrize("package", [package for top in TOP_PACKAGES for package in packages_of(top)])
def test_a_packages_docstring_names_its_modules_and_no_others(package: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
    named = set(re.findall(r"(\w+\.py)(?=[ ,]|$)", text, re.MULTILINE))
    assert named == {path.name for path in (ROOT / package).glob("*.py")} - {"__init__.py"}


@pytest.mark.parametrize("package", [package for top in TOP_PACKAGES for package in packages_of(top)])
def test_a_package_has_no_more_modules_than_can_be_surveyed(package: str) -> None:
    assert len([path for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"]) <= MODULES_MAX


def test_the_gateways_docstring_names_its_subpackages_and_no_others() -> None:
    text = ast.get_docstring(ast.parse((ROOT / "jobs/gateway/__init__.py").read_text())) or ""
    named = set(re.findall(r"^\s+(\w+)/ ", text, re.MULTILINE))
    assert named == {path.parent.name for path in (ROOT / "jobs/gateway").glob("*/__init__.py")}
