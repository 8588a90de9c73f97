"""The fake rail is on, and there are two operators."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from marketplace.accounts.models import User
from tests.integration.billing.payouts.loopback import be_on_loopback
from tests.people import operator


@pytest.fixture(autouse=True)
def fake_rail(settings: Settings) -> None:
    be_on_loopback(settings)
    settings.SOUK_RESERVE_BPS = 0


@pytest.fixture
def olga(db: None) -> User:
    return operator("olga")


@pytest.fixture
def otto(db: None) -> User:
    return operator("otto")
