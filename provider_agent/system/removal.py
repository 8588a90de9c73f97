"""Removes a folder that a program filled, however deep its folders lie."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from provider_agent.system.programs import SYSTEM_PATH

REMOVAL_SECONDS_MAX = 600.0


def remove_tree(path: Path) -> None:
    """Remove `path` with all below it; what cannot be removed is left, without an error.

    Python's own removal calls itself and opens a folder once a level, so that a program's 10,000 levels end it with a
    RecursionError; `rm` knows no such limit.
    """
    with suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if path.is_dir() and not path.is_symlink():
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(  # noqa: S603 - a fixed program and our own path
                [shutil.which("rm", path=SYSTEM_PATH) or "rm", "-rf", "--one-file-system", "--", str(path.absolute())],
                check=False,
                capture_output=True,
                timeout=REMOVAL_SECONDS_MAX,
                env={"PATH": SYSTEM_PATH, "LC_ALL": "C"},
            )
