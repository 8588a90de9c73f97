"""One chain for all tests of a process, with one escrow; each test leaves it as it found it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from tests.unit.billing.contract.chain import Chain
from tests.unit.billing.contract.scene import Scene


@cache
def _world() -> Scene:
    return Scene.make(Chain())


@pytest.fixture
def chain() -> Iterator[Chain]:
    """The chain, for escrows of the test's own."""
    scene = _world()
    before = scene.chain.snapshot()
    yield scene.chain
    scene.chain.revert(before)


@pytest.fixture
def scene(chain: Chain) -> Scene:
    """The escrow that is there, on an honest token."""
    return _world()


@pytest.fixture
def hostile(chain: Chain) -> Scene:
    """An escrow of Mallory's token."""
    return Scene.make(chain, "HostileToken")
