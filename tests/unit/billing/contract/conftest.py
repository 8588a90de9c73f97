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


@cache
def _hostile_world() -> Scene:
    return Scene.make(Chain(), "HostileToken")


@pytest.fixture
def shared_hostile() -> Iterator[Scene]:
    """The same on a chain of its own, for tests by the dozen."""
    scene = _hostile_world()
    before = scene.chain.snapshot()
    yield scene
    scene.chain.revert(before)


@pytest.fixture
def promised(scene: Scene) -> tuple[Scene, list[bytes]]:
    """An open root for three, and its leaves."""
    scene.buy_credits(5_000)
    return scene, scene.publish({"bob": 100, "ben": 200, "mallory": 300})


@pytest.fixture
def running(scene: Scene) -> Scene:
    """A hold of 10,000 at no more than 1,000 an hour, and Bob's key registered."""
    scene.open_hold()
    scene.register()
    return scene
