"""A customer whose files go to a real store, in parts that are small: fixtures for uploads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.artifacts.store import Store
from jobs.client.sdk import Souk
from marketplace.accounts import api_keys
from marketplace.accounts.models import Organisation
from marketplace.accounts.scopes import Scope
from tests import stage
from tests.contracts.artifact_stores.conftest import PART_BYTES, s3_endpoint, store

__all__ = ["PART_BYTES", "Cut", "alice", "s3_endpoint", "souk", "store"]


class Cut(BaseException):
    """The process ends here, as by Ctrl-C or a kill."""


@pytest.fixture
def alice() -> Organisation:
    return stage.organisation("alice")


@pytest.fixture
def souk(
    alice: Organisation, live_server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store
) -> Iterator[Souk]:
    """Her key, also for commands of `souk`."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    _, key = api_keys.issue(user=alice.members.get(), organisation=alice, name="test", scopes=tuple(Scope))
    monkeypatch.setenv("SOUK_SERVER", live_server.url)
    monkeypatch.setenv("SOUK_API_KEY", key)
    with Souk(live_server.url, key) as client:
        yield client
