"""R12: reorganisations up to twelve deep at every step of deposit, hold, settlement and payout."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from uuid import uuid4

import pytest
from django.db.models import Count

from billing.models import ChainBlock, ChainEvent, ChainTransaction
from tests.chain.conftest import Anvil
from tests.chain.schedules import CONFIRMATIONS, STEPS, Schedule
from tests.integration.billing.chain.escrows import delegate
from tests.integration.billing.chain.town import TOKEN
from tests.integration.billing.scenes import assert_ledger_is_true

pytestmark = pytest.mark.anvil

SCHEDULES = int(os.environ.get("SOUK_REORG_SCHEDULES", "4"))
FIRST_SEED = int(os.environ.get("SOUK_REORG_SEED", "1"))


@pytest.mark.timeout(120 + 60 * SCHEDULES)
def test_R12_after_any_schedule_the_books_are_the_contracts(build_anvil: Callable[..., Anvil], anvil_url: str):
    """One town for all schedules, each with people of its own. A failure names its seed."""
    anvil = build_anvil(confirmations=CONFIRMATIONS, rpc_urls=[anvil_url, anvil_url.replace("127.0.0.1", "localhost")])
    treasury = uuid4()
    anvil.buy_credits("Bank", treasury, SCHEDULES * STEPS * TOKEN)
    anvil.deposit("Alice", SCHEDULES * STEPS * 2 * TOKEN)
    anvil.mint("Alice", SCHEDULES * STEPS * 10 * TOKEN)
    anvil.key("Mallory")
    anvil.mine(CONFIRMATIONS + 1)
    delegate(anvil, seconds=300 * 86_400)  # every block is a second later at least: the chain's clock runs ahead
    anvil.mine(CONFIRMATIONS + 1)
    anvil.follow(2)
    started = time.monotonic()
    reorganisations = 0
    for seed in range(FIRST_SEED, FIRST_SEED + SCHEDULES):
        schedule = Schedule(anvil, seed, treasury)
        try:
            schedule.play()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {schedule.history}") from error
        reorganisations += sum(action.startswith("reorg") for action in schedule.history)
    assert_ledger_is_true()
    minutes = (time.monotonic() - started) / 60
    booked = ChainEvent.objects.exclude(processed_at=None).values_list("name").annotate(Count("pk")).order_by("name")
    print(f"{SCHEDULES} schedules, {SCHEDULES / minutes:.0f} a minute; {reorganisations} reorganisations")
    print(f"blocks orphaned: {ChainBlock.objects.filter(state='orphaned').count()}; events booked: {dict(booked)}")
    print(f"transactions: {dict(ChainTransaction.objects.values_list('state').annotate(Count('pk')))}")
