"""A difference that reconciliation finds, and the password of those who book it."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import uuid4

from billing.books.chart_of_accounts import open_usd
from billing.models import FakeMovement
from marketplace.foundation import clock
from tests.integration.billing.scenes import DOLLAR

WHY: Final = "A test payment of the operator's own."


def move(amount: int = 5 * DOLLAR, ref: str = "txn_1", age: timedelta = timedelta(hours=1)) -> None:
    """The outside moves what nothing books."""
    open_usd()
    FakeMovement.objects.create(ref=ref, payout_id=uuid4(), asset_id=1, amount=amount, at=clock.now() - age)
