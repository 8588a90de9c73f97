"""An installation of two nodes, and an updater that waits for seconds where it would wait for minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from provider_agent.updating import trial
from tests.integration.provider_agent.updating.installation import Installation, installed


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(trial, "PROBE_SECONDS", 0.2)
    monkeypatch.setattr(trial, "DOWN_SECONDS_MAX", 0.5)


@pytest.fixture
def bob(tmp_path: Path) -> Iterator[Installation]:
    with installed(tmp_path, "bob-1", "bob-2") as made:
        yield made
