"""A hold in a contract is what a wallet signed: a better price is the customer's, a worse one makes the job wait."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from billing import prices
from billing.account_kinds import AccountKind
from billing.models import EscrowHold
from billing.states.chain import EscrowHoldState
from jobs import lifecycle, sweeps
from jobs.api.job_views import show_job
from jobs.bills.bill import make_bill
from jobs.client.verify.bill import verify_bill
from jobs.errors import HoldCannotGrow
from jobs.models import Job, PriceHalt, Quote
from jobs.placing import requotes
from jobs.states import JobState
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from provider_agent.protocol import Reason
from tests import stage
from tests.integration.billing.chain.town import Town, devchain_town
from tests.integration.billing.scenes import assert_ledger_is_true
from tests.integration.jobs.escrow import scenes as signed
from tests.integration.jobs.requotes.scenes import locks, run
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def town(transactional_db: None, settings: Any) -> Iterator[Town]:
    with devchain_town(settings) as made:
        made.follow()
        prices.set_price(made.asset_id, DOLLAR, actor="operator")
        made.deposit("Alice", 10 * DOLLAR)
        signed.delegate(made, signed.node("bobs-node"))
        made.follow(2)
        settings.SOUK_TOKEN_PRICE_SECONDS = 900
        yield made


@pytest.fixture
def alice(town: Town) -> Organisation:
    return stage.organisation("alice")


def held(town: Town, alice: Organisation) -> Job:
    """Its hold is final; while it waited for that, its price became old."""
    job = signed.submit(town, alice)
    town.follow(2)
    town.pass_seconds(signed.SECONDS_HELD)
    Quote.objects.filter(pk=job.quote_id).update(created_at=clock.now() - timedelta(hours=1))
    return job


def test_a_worse_price_makes_it_wait_and_a_cancel_gives_the_hold_back(town: Town, alice: Organisation) -> None:
    job = held(town, alice)
    prices.set_price(town.asset_id, DOLLAR * 97 // 100, actor="operator")
    assert stage.place(job) == []
    assert "launch it again" in job.waiting_for and job.state == JobState.QUEUED
    change = show_job(job).price_change
    assert change is not None and not change.can_confirm
    with pytest.raises(HoldCannotGrow, match="No lower price can be confirmed"):
        requotes.confirm(job.pk, usd_micros_per_token=DOLLAR * 97 // 100, actor="alice")
    sweeps.sweep_jobs()  # of holds, too: this one is open, and its job goes on waiting
    assert Job.objects.get(pk=job.pk).state == JobState.QUEUED
    lifecycle.cancel(job.pk, actor="alice")
    signed.pass_time(town)
    assert EscrowHold.objects.get(pk=job.pk).state == EscrowHoldState.CLOSED
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 10 * DOLLAR
    assert not PriceHalt.objects.exists()
    town.assert_books_match()


def test_a_better_price_is_the_customers_and_falls_back_to_what_was_signed(
    town: Town, alice: Organisation, settings: Any
) -> None:
    """At a better price the lease costs less of the token; back at the quote's, the wallet's word still covers it."""
    job = held(town, alice)
    settings.SOUK_TOKEN_PRICE_SECONDS = 0
    prices.set_price(town.asset_id, 2 * DOLLAR, actor="operator")
    [first] = signed.start(job)
    assert (int(first.rate_units_per_hour), int(first.cap_units)) == (DOLLAR, DOLLAR)
    run(first, ms=600_001)
    prices.set_price(town.asset_id, DOLLAR, actor="operator")
    [second] = signed.start(job)
    assert locks(job) == [(2 * DOLLAR, "rose"), (DOLLAR, "agreed")]
    assert int(second.rate_units_per_hour) == 2 * DOLLAR
    first.refresh_from_db()
    assert int(first.charge_units or 0) + int(second.cap_units) <= int(EscrowHold.objects.get(pk=job.pk).amount)
    signed.use(second, seconds=600, ms=500_000)
    stage.finish(second, Reason.COMPLETED)
    job.refresh_from_db()
    assert job.state == JobState.COMPLETED
    signed.pass_time(town)
    hold = EscrowHold.objects.get(pk=job.pk)
    second.refresh_from_db()
    assert int(hold.settled) == int(first.charge_units or 0) + int(second.charge_units or 0) > 0
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 10 * DOLLAR - int(hold.settled)
    bill = make_bill(job)
    assert bill.is_final and verify_bill(bill).problem is None
    town.assert_books_match()
    assert_ledger_is_true()
