"""A lease that looks often."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from provider_agent.lease.cache import prepared
from tests.unit.provider_agent.prepared.leases import Lease


@pytest.fixture
def lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lease]:
    monkeypatch.setattr(prepared, "YIELD_SECONDS", 0.01)
    monkeypatch.setattr(prepared, "LOOK_SECONDS", 0.01)
    made = Lease(tmp_path / "data")
    yield made
    made.journal.close()
