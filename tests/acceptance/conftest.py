"""One marketplace for all acceptance tests: real processes, reached by their public addresses only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.market import Market, Party


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under `pytest --dist loadgroup` one worker has all tests of the shared marketplace, the others have whole files.

    With `loadfile` each worker would start a marketplace, install its agents, and keep both to the end.
    """
    for item in items:
        is_shared = "market" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("market" if is_shared else item.path.stem))


@pytest.fixture(scope="session")
def market() -> Iterator[Market]:
    """`souk up` in a temporary folder, with two nodes of different prices."""
    # Not pytest's own folders: as root PostgreSQL runs as another user, which may not enter those.
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="souk-acceptance-", dir="/tmp") as name,
    ):
        if os.environ.get("SOUK_TEST_SERVERS") == "embedded":  # those are pytest's; `souk up` is to start its own
            patch.delenv("DATABASE_URL")
            patch.delenv("REDIS_URL")
        with Market(Path(name)) as running:
            running.add_node("cheap", price="0.30")
            running.add_node("dear", price="0.60")
            yield running
        assert running.left == [], "everything ends when the marketplace gets the signal to stop"


@pytest.fixture
def alice(market: Market, request: pytest.FixtureRequest) -> Party:
    """A customer with five dollars, new for each test."""
    party = market.sign_up("alice-" + str(abs(hash(request.node.name)))[:12])
    market.deposit(party, "5.00")
    return party
