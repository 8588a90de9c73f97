"""A file that is written whole, or stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO

from jobs.client.errors import UsageMistake

PARTIAL_SUFFIX = ".souk-partial"


def save_whole(path: Path, fetch: Callable[[IO[bytes]], int]) -> None:
    """The whole file, or the one that was there before; raises UsageMistake where it cannot be written."""
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    try:
        with partial.open("wb") as into:
            fetch(into)
        partial.replace(path)
    except OSError as error:
        raise UsageMistake(f"{path} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
