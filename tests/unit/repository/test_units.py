"""tests/unit/conftest.py keeps its word."""

from __future__ import annotations

import os
import subprocess

import pytest


def test_a_unit_test_that_starts_a_process_fails() -> None:
    with pytest.raises(AssertionError, match="move it to tests/integration"):
        subprocess.run(["true"], check=True)
    with pytest.raises(AssertionError, match="move it to tests/integration"):
        os.fork()
