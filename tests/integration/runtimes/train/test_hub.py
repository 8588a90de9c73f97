"""A training's model is fetched from a hub, at a commit where one is named: nobody changes it between two attempts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.runtimes.hub import BRANCH, COMMIT, Hub
from tests.integration.runtimes.programs import MICRO_MODEL

FIND = """
import sys
from pathlib import Path
from runtimes.job_files import JobFiles
from runtimes.train.model import find_model
print(find_model(sys.argv[1], JobFiles(Path("."))).folder.name)
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / "of-the-hub"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MICRO_MODEL))
    made = Hub(folder)
    yield made
    made.close()


def find(hub: Hub, name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", FIND, name]
    env = hub.environment(folder / "home")
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("revision", ["v1", COMMIT])
def test_a_model_comes_at_its_revision(hub: Hub, revision: str, tmp_path: Path) -> None:
    done = find(hub, f"alice/tiny@{revision}", tmp_path)
    assert done.stdout.split() == [COMMIT], done.stderr


def test_a_branch_that_is_called_like_a_commit_is_refused(hub: Hub, tmp_path: Path) -> None:
    """Its owner could move it, and have honest nodes call honest checkpoints bad; the library finds another commit."""
    done = find(hub, f"alice/tiny@{BRANCH}", tmp_path)
    assert done.returncode != 0
    assert f"BadData: model 'alice/tiny@{BRANCH}'" in done.stderr
