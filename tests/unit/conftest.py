"""A unit test starts no process: one that does belongs to tests/integration."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

STARTS = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")


def refuse(*_: Any, **__: Any) -> NoReturn:
    """Fail the test: replaces every function that starts a process while unit tests run."""
    raise AssertionError("a unit test starts a process: move it to tests/integration")


@pytest.fixture(autouse=True, scope="package")
def no_processes() -> Iterator[None]:
    """Fail a test that starts a process, also where a fixture of its module does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", refuse)
        for name in STARTS:
            patch.setattr(os, name, refuse)
        yield
