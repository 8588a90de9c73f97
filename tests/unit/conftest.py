"""A unit test starts no process: one that does belongs to tests/integration."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

STARTS = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")


def refuse(*_: Any, **__: Any) -> NoReturn:
    """What every way to a process is, as long as a unit test runs."""
    raise AssertionError("a unit test starts a process: move it to tests/integration")


@pytest.fixture(autouse=True, scope="package")
def no_processes() -> Iterator[None]:
    """Starting one fails the test, also in a fixture of its module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", refuse)
        for name in STARTS:
            patch.setattr(os, name, refuse)
        yield
