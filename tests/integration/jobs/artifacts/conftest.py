"""These tests are about bytes and rows, whatever is in them: the program is a customer's own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from jobs.models import Lease
from marketplace.foundation import clock


@pytest.fixture
def lease(own_lease: Lease) -> Lease:
    return own_lease


@pytest.fixture
def day() -> Callable[[float], datetime]:
    """The moment so many days from tomorrow's noon, which goes on with the clock: no test is cut by a midnight."""
    real = clock.now
    noon = real().replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=1)
    ahead = noon - real()
    return lambda days: real() + ahead + timedelta(days=days)
