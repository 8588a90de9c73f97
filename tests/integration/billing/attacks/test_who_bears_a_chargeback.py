"""The customer before anybody else, whatever they do meanwhile; and no provider for what it never kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books.chart_of_accounts import AccountName
from billing.charging import holds, settlement
from billing.contesting import disputes
from billing.fiat import chargebacks, intents, recovery, refunds, sweeping
from billing.models import SettlementShare
from billing.rails.stripe import booking
from marketplace.foundation import clock
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.dashboard import refund_in_dashboard
from tests.integration.billing.fiat.losing import FEE, earned, loss, run_job
from tests.integration.billing.fiat.scenes import DOLLAR, available
from tests.integration.billing.scenes import race

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice(db: None) -> UUID:
    return uuid4()


def lose(stripe: FakeStripe, charge_id: str) -> None:
    made = stripe.open_dispute(charge_id)
    stripe.close_dispute(made["id"], won=False)
    scenes.receive_events(stripe)


def test_what_a_customer_earns_as_a_provider_pays_before_other_providers_do(
    stripe: FakeStripe, alice: UUID, bob: UUID
) -> None:
    carol = uuid4()
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    run_job(alice, bob, 100 * DOLLAR)
    scenes.pay_in(stripe, carol, 90 * DOLLAR)
    run_job(carol, alice, 90 * DOLLAR)  # she provides as well
    lose(stripe, top_up.charge_id)
    assert (earned(alice), earned(bob), loss()) == (0, 75 * DOLLAR, 0)
    scenes.assert_same_books(stripe)


def test_what_she_earns_after_she_lost_pays_too(stripe: FakeStripe, alice: UUID) -> None:
    carol = uuid4()
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    holds.place_hold(owner_id=alice, job_id=uuid4(), amount=100 * DOLLAR)
    lose(stripe, top_up.charge_id)
    assert loss() == 115 * DOLLAR
    scenes.pay_in(stripe, carol, 90 * DOLLAR)
    run_job(carol, alice, 90 * DOLLAR)
    sweeping.sweep()
    assert (earned(alice), loss()) == (0, 25 * DOLLAR)
    scenes.assert_same_books(stripe)


def test_a_provider_does_not_lose_twice_what_a_dispute_gave_the_customer(
    stripe: FakeStripe, alice: UUID, bob: UUID
) -> None:
    carol = uuid4()
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    run_job(alice, bob, 40 * DOLLAR, released=False)
    share = SettlementShare.objects.get()
    made = disputes.open_dispute(customer_id=alice, lease_id=share.lease_id, text="It never ran.", actor="alice")
    disputes.decide(made.pk, to_customer=40 * DOLLAR, to_provider=0, to_platform=0, text="So it was.", actor="op")
    scenes.pay_in(stripe, carol, 50 * DOLLAR)
    run_job(carol, bob, 50 * DOLLAR)
    run_job(alice, uuid4(), 100 * DOLLAR, released=False)  # by a provider from whom nothing can be recovered yet
    lose(stripe, top_up.charge_id)
    assert earned(bob) == 50 * DOLLAR
    scenes.assert_same_books(stripe)


def test_what_is_frozen_by_a_dispute_is_not_asked_of_its_provider_either(
    stripe: FakeStripe, alice: UUID, bob: UUID
) -> None:
    carol = uuid4()
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    run_job(alice, bob, 100 * DOLLAR, released=False)
    share = SettlementShare.objects.get()
    disputes.open_dispute(customer_id=alice, lease_id=share.lease_id, text="It never ran.", actor="alice")
    scenes.pay_in(stripe, carol, 50 * DOLLAR)
    run_job(carol, bob, 50 * DOLLAR)
    stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    assert earned(bob) == 50 * DOLLAR


@pytest.mark.parametrize("has_enough", [True, False])
def test_money_that_comes_back_to_the_customer_gives_providers_theirs_back(
    stripe: FakeStripe, alice: UUID, bob: UUID, has_enough: bool
) -> None:
    """What lay in a hold when the bank took it back would have paid first, had it been there."""
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    run_job(alice, bob, 60 * DOLLAR)
    job_id = uuid4()
    holds.place_hold(owner_id=alice, job_id=job_id, amount=40 * DOLLAR)
    stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    assert (available(alice), earned(bob), loss()) == (0, 0, 55 * DOLLAR)
    scenes.pay_in(stripe, alice, (200 if has_enough else 45) * DOLLAR)
    holds.release_hold(job_id)
    sweeping.sweep()
    expected = (125 * DOLLAR, 60 * DOLLAR) if has_enough else (0, 30 * DOLLAR)
    assert (available(alice), earned(bob), loss()) == (*expected, 0)
    scenes.assert_same_books(stripe)


def test_a_dispute_that_is_won_after_that_gives_it_to_who_paid_in_the_end(
    stripe: FakeStripe, alice: UUID, bob: UUID
) -> None:
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    run_job(alice, bob, 60 * DOLLAR)
    holds.place_hold(owner_id=alice, job_id=(job_id := uuid4()), amount=40 * DOLLAR)
    made = stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    scenes.pay_in(stripe, alice, 45 * DOLLAR)
    holds.release_hold(job_id)
    sweeping.sweep()
    stripe.close_dispute(made["id"], won=True)
    scenes.receive_events(stripe)
    assert (available(alice), earned(bob)) == (85 * DOLLAR, 60 * DOLLAR)
    scenes.assert_same_books(stripe)


def test_pay_that_leaves_its_window_after_the_bank_decided_is_still_asked(
    stripe: FakeStripe, alice: UUID, bob: UUID
) -> None:
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    run_job(alice, bob, 100 * DOLLAR, released=False)
    lose(stripe, top_up.charge_id)
    assert loss() == 115 * DOLLAR
    settlement.release_pending(clock.now() + timedelta(days=400))
    sweeping.sweep()
    assert (earned(bob), loss()) == (0, FEE)
    scenes.assert_same_books(stripe)


def _an_owner_whose_balance_is_locked_last() -> UUID:
    """Accounts are locked in the order of their ids, which follow from their owners."""
    return next(
        owner
        for owner in iter(uuid4, None)
        if AccountName(AccountKind.CUSTOMER_AVAILABLE, owner).id > max(booking.PLATFORM.id, recovery.LOSS.id)
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("returned", ["by the bank", "in the dashboard", "by the customer"])
def test_who_lets_go_what_waits_waits_for_nobody_who_waits_for_it(stripe: FakeStripe, returned: str) -> None:
    owner = _an_owner_whose_balance_is_locked_last()
    scenes.fund_platform(stripe, 100_000)
    waiting = scenes.pay_in(stripe, owner, 500 * DOLLAR)
    paid = scenes.ask(owner, 400 * DOLLAR)
    scenes.call_due()
    paid.refresh_from_db()
    stripe.pay_session(paid.session_id)
    intent_id = stripe.get(paid.session_id)["payment_intent"]
    take: Callable[[], object]
    if returned == "by the bank":
        made = stripe.open_dispute(waiting.charge_id)
        take = lambda: chargebacks.refresh_dispute(made["id"])  # noqa: E731
    elif returned == "in the dashboard":
        refund_id = refund_in_dashboard(stripe, waiting.charge_id, 50_000)
        take = lambda: refunds.refresh_refund(refund_id)  # noqa: E731
    else:
        take = lambda: refunds.request_refund(waiting.pk, owner_id=owner, actor="a")  # noqa: E731
    release = holds.release_hold

    def release_slowly(*args: Any, **kwargs: Any) -> object:
        released = release(*args, **kwargs)
        time.sleep(0.6)  # the balance is locked now; meanwhile the other payment locks Stripe's account
        return released

    def credit_a_little_later() -> object:
        time.sleep(0.3)
        return intents.refresh_intent(intent_id)

    with patch.object(holds, "release_hold", release_slowly):
        results = race([take, credit_a_little_later])
    assert [one for one in results if isinstance(one, Exception)] == []
