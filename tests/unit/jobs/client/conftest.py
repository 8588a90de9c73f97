"""Alice at her terminal, before a marketplace that runs in a thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobs.client import cli, follow, transport, watch
from jobs.client.sdk import Souk
from tests.unit.jobs.client.fake_server import KEY, FakeMarketplace

JOB_FILE = """\
kind: train
name: tiny
budget: {max_total: 2}
files: [train.py, data]
secrets: [HF_TOKEN]
command: python input/train.py
"""


@dataclass
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, which must be exactly one JSON value."""
        return json.loads(self.out)


Run = Callable[..., Ended]


@pytest.fixture
def market(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeMarketplace]:
    monkeypatch.setattr(transport, "BACKOFF_SECONDS", 0.005)
    monkeypatch.setattr(follow, "IDLE_SECONDS", 0.02)
    monkeypatch.setattr(watch, "TICK_SECONDS", 0.02)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with FakeMarketplace() as running:
        monkeypatch.setenv("SOUK_SERVER", running.url)
        monkeypatch.setenv("SOUK_API_KEY", KEY)
        yield running


@pytest.fixture
def souk(market: FakeMarketplace) -> Iterator[Souk]:
    with Souk(market.url, KEY) as client:
        yield client


@pytest.fixture
def run(market: FakeMarketplace, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return Ended(int(left.value.code or 0), out, err)

    return call


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    """A job of an own script with a folder of data."""
    folder = tmp_path / "work"
    (folder / "data" / ".git").mkdir(parents=True)
    (folder / "data" / ".git" / "config").write_text("not sent")
    (folder / "data" / "a.txt").write_text("some text")
    (folder / "data" / "empty").write_text("")
    (folder / "train.py").write_text("print('hello')")
    path = folder / "job.yaml"
    path.write_text(JOB_FILE)
    return path
