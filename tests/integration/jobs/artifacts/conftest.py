"""These tests are about bytes and rows, whatever is in them: the program is a customer's own."""

from __future__ import annotations

import pytest

from jobs.models import Lease


@pytest.fixture
def lease(own_lease: Lease) -> Lease:
    return own_lease
