"""Packages of many modules say in their docstring where each thing happens."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = (
    "jobs/gateway",
    "jobs/gateway/tunnels",
    "jobs/serving",
    "provider_agent/tunnel",
    "provider_agent/protocol/tunnel",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_packages_docstring_names_its_modules_and_no_others(package: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
    named = set(re.findall(r"(\w+\.py)(?=[ ,]|$)", text, re.MULTILINE))
    assert named == {path.name for path in (ROOT / package).glob("*.py")} - {"__init__.py"}
