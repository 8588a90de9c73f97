from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.embedded.marketplaces import Up, free_port


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A new folder with a short path that PostgreSQL's own user may enter; pytest's own are neither."""
    folder = Path(tempfile.mkdtemp(prefix="souk-up-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def running() -> Iterator[Up]:
    """One marketplace for a whole file."""
    folder = Path(tempfile.mkdtemp(prefix="souk-up-"))
    folder.chmod(0o755)
    with Up(folder / "data", free_port()) as up:
        yield up
    shutil.rmtree(folder, ignore_errors=True)
