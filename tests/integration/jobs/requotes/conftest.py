"""Alice has a whole WETH here, Bob one node; every look at a job's price finds it old."""

from __future__ import annotations

from typing import Any

import pytest

from billing.models import Asset
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from tests.integration.jobs.requotes import scenes


@pytest.fixture
def weth(transactional_db: None, settings: Any) -> Asset:
    settings.SOUK_TOKEN_PRICE_SECONDS = 0
    return scenes.weth()


@pytest.fixture
def alice(weth: Asset) -> Organisation:
    return scenes.alice()


@pytest.fixture
def bob(weth: Asset) -> Node:
    return scenes.node("bobs-node")
