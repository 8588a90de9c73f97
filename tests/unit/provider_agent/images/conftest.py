"""An engine, and a registry, that answer what a test says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.provider_agent.images.engine import FakeEngine
from tests.unit.provider_agent.images.registry import FakeRegistry


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    """One that keeps images in no containerd."""
    made = FakeEngine()
    made.answers["/info"] = 200, {"DriverStatus": [["Backing Filesystem", "extfs"]]}
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """One without images."""
    made = FakeRegistry()
    yield made
    made.server.shutdown()
    made.server.server_close()
