"""Alice has five dollars, and Bob a node."""

from __future__ import annotations

import pytest

from tests import stage
from tests.stage import DOLLAR


@pytest.fixture
def alice():
    return stage.organisation("alice", usd_micros=5 * DOLLAR)


@pytest.fixture
def bob():
    return stage.node("bobs-node")
