"""A chain of its own for every test: a development chain in memory, with an escrow that is registered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.billing.chain.town import Town, devchain_town


@pytest.fixture
def town(db: None, settings: Any) -> Iterator[Town]:
    with devchain_town(settings) as made:
        yield made
