"""The fake rail is on, nobody is on probation unless a test sets it."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from tests.integration.billing.payouts.loopback import be_on_loopback


@pytest.fixture(autouse=True)
def fake_rail(settings: Settings) -> None:
    be_on_loopback(settings)
    settings.SOUK_RESERVE_BPS = 0
