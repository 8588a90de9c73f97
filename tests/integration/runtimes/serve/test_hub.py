"""A model is fetched from a hub at its revision, only what an engine reads, with progress."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.runtimes.hub import COMMIT, Hub

FIND = """
import sys
from pathlib import Path
from runtimes.contract import EventWriter
from runtimes.serve.config import Source
from runtimes.serve.weights import find_model
here = Path(".")
model = find_model(Source("hub", sys.argv[1]), input_dir=here, lent_dir=here, events=EventWriter("events.jsonl"))
print(model.folder, *sorted(path.name for path in model.folder.iterdir()))
"""


@pytest.fixture
def hub(llama: Path) -> Iterator[Hub]:
    made = Hub(llama)
    yield made
    made.close()


def find(hub: Hub, name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", FIND, name],
        cwd=folder,
        env=hub.environment(folder / "home"),
        capture_output=True,
        text=True,
        check=False,
    )


def test_model_comes_at_its_revision_without_what_could_run_code(hub: Hub, tmp_path: Path) -> None:
    done = find(hub, "alice/tiny@v1", tmp_path)
    assert done.returncode == 0, done.stderr
    folder, *names = done.stdout.split()
    assert folder.endswith(COMMIT)
    assert names == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert not any(path.endswith(".bin") for path in hub.asked)
    stages = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert {event["stage"] for event in stages} == {"fetch", "verify"}


def test_model_that_is_not_there_is_named(hub: Hub, tmp_path: Path) -> None:
    done = find(hub, "alice/other", tmp_path)
    assert "BadModel: alice/other cannot be fetched from the hub" in done.stderr
