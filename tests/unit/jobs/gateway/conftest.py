"""Tests do not wait a second for each sync."""

from __future__ import annotations

import pytest

from jobs.gateway import control_sync


@pytest.fixture(autouse=True)
def quick_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_sync, "SYNC_SECONDS", 0.15)
