"""A chain, a node whose provider the contract knows, and Alice with money of her wallet in the contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from billing import prices
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from tests import stage
from tests.integration.billing.chain.town import Town, devchain_town
from tests.integration.jobs.escrow import scenes
from tests.stage import DOLLAR


@pytest.fixture
def town(transactional_db: None, settings: Any) -> Iterator[Town]:
    with devchain_town(settings) as made:
        made.follow()
        prices.set_price(made.asset_id, DOLLAR, actor="operator")
        yield made


@pytest.fixture
def bob(town: Town) -> Node:
    """His node; his wallet is known to the contract."""
    bob = scenes.node("bobs-node")
    scenes.delegate(town, bob)
    town.follow(2)
    return bob


@pytest.fixture
def alice(town: Town) -> Organisation:
    """Her organisation has nothing here; her wallet has ten tokens in the contract."""
    town.deposit("Alice", 10 * DOLLAR)
    town.follow()
    return stage.organisation("alice")
