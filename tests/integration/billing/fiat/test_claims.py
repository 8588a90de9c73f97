"""What Stripe reversed is paid by the customer's balance in the end, in whatever order it was reported."""

from __future__ import annotations

from itertools import permutations
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from billing.account_kinds import AccountKind
from billing.books import deposits, ledger
from billing.books.chart_of_accounts import open_account
from billing.errors import TransferRefused
from billing.fiat import chargebacks, claims, refunds, sweeping
from billing.models import Account, CardDispute, Payout, PayoutSettings, TopUpRefund
from billing.money import MICROS_PER_CENT
from billing.payouts import paying
from billing.payouts.running import run_payouts
from marketplace.foundation import clock
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.dashboard import refund_in_dashboard
from tests.integration.billing.fiat.scenes import DOLLAR, available
from tests.integration.billing.payouts.loopback import be_on_loopback
from tests.integration.billing.payouts.scenes import choose, earn, send, usd
from tests.integration.billing.scenes import race

pytestmark = pytest.mark.django_db


def loss() -> int:
    return -ledger.balance(None, AccountKind.CHARGEBACK_LOSS)


def _ends_lost(dispute_id: str) -> bool:
    return chargebacks.refresh_dispute(dispute_id).state == "lost"


def fund(stripe: FakeStripe) -> None:
    scenes.fund_platform(stripe, 50_000)


@pytest.mark.parametrize("is_dispute_first", [False, True])
def test_a_refund_in_stripes_dashboard_is_paid_by_a_frozen_balance_too(
    stripe: FakeStripe, alice: UUID, is_dispute_first: bool
) -> None:
    fund(stripe)
    first, second = scenes.pay_in(stripe, alice, 90 * DOLLAR), scenes.pay_in(stripe, alice, 80 * DOLLAR)
    dispute = stripe.open_dispute(first.charge_id)
    refund_id = refund_in_dashboard(stripe, second.charge_id, 8_000)
    steps = [lambda: chargebacks.refresh_dispute(dispute["id"]), lambda: refunds.refresh_refund(refund_id)]
    for step in steps if is_dispute_first else reversed(steps):
        step()
    assert (available(alice), loss()) == (0, 15 * DOLLAR)
    assert open_account(AccountKind.CUSTOMER_AVAILABLE, alice).is_frozen
    scenes.assert_same_books(stripe)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_what_a_balance_could_not_pay_comes_out_of_the_next_top_up(
    stripe: FakeStripe, alice: UUID, order: tuple[int, ...]
) -> None:
    """Pay $83 and $20, lose a dispute, refund the other, pay $90: $13 less than nothing, so $75 of the last."""
    fund(stripe)
    first, second = scenes.pay_in(stripe, alice, 83 * DOLLAR), scenes.pay_in(stripe, alice, 20 * DOLLAR)
    dispute = stripe.open_dispute(first.charge_id)
    stripe.close_dispute(dispute["id"], won=False)
    refund_id = refund_in_dashboard(stripe, second.charge_id, 2_000)
    steps = [
        lambda: chargebacks.refresh_dispute(dispute["id"]),
        lambda: refunds.refresh_refund(refund_id),
        lambda: scenes.pay_in(stripe, alice, 90 * DOLLAR) and None,
    ]
    for number in order:
        steps[number]()
    assert (available(alice), loss()) == (75 * DOLLAR, 0)
    scenes.receive_events(stripe)
    assert (available(alice), loss()) == (75 * DOLLAR, 0)
    scenes.assert_same_books(stripe)


def test_what_a_balance_owes_of_a_refund_is_asked_once_and_remembered(stripe: FakeStripe, alice: UUID) -> None:
    fund(stripe)
    first, second = scenes.pay_in(stripe, alice, 50 * DOLLAR), scenes.pay_in(stripe, alice, 20 * DOLLAR)
    stripe.open_dispute(first.charge_id)
    scenes.receive_events(stripe)
    refund_in_dashboard(stripe, second.charge_id, 2_000)
    scenes.receive_events(stripe)
    refund = TopUpRefund.objects.get()
    assert (available(alice), refund.shortage, loss()) == (0, 15 * DOLLAR, 15 * DOLLAR)
    deposits.credit(alice, 10 * DOLLAR, reference="cash", actor="operator")  # not by card: the sweep finds it
    assert available(alice) == 10 * DOLLAR
    for _ in range(2):
        sweeping.sweep()
    refund.refresh_from_db()
    assert (available(alice), refund.shortage, loss()) == (0, 5 * DOLLAR, 5 * DOLLAR)
    deposits.credit(alice, 10 * DOLLAR, reference="more cash", actor="operator")
    assert [claims.settle(alice), claims.settle(alice)] == [5 * DOLLAR, 0]
    assert (available(alice), loss()) == (5 * DOLLAR, 0)
    assert open_account(AccountKind.CUSTOMER_AVAILABLE, alice).is_frozen
    scenes.assert_same_books(stripe)


def test_the_operator_who_unfroze_a_balance_does_not_find_it_frozen_again(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 50 * DOLLAR)
    dispute = stripe.open_dispute(top_up.charge_id)
    stripe.close_dispute(dispute["id"], won=False)
    scenes.receive_events(stripe)
    Account.objects.filter(owner_id=alice).update(is_frozen=False)
    scenes.pay_in(stripe, alice, 40 * DOLLAR)
    assert (available(alice), loss()) == (25 * DOLLAR, 0)
    assert not open_account(AccountKind.CUSTOMER_AVAILABLE, alice).is_frozen


def test_a_dispute_that_is_won_late_gives_back_what_a_later_top_up_paid(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 50 * DOLLAR)
    dispute = stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    scenes.pay_in(stripe, alice, 40 * DOLLAR)
    assert available(alice) == 25 * DOLLAR
    stripe.close_dispute(dispute["id"], won=True)
    scenes.receive_events(stripe)
    assert (available(alice), loss()) == (90 * DOLLAR, 15 * DOLLAR)
    assert claims.settle(alice) == 0  # a dispute that is won is nobody's claim
    scenes.assert_same_books(stripe)


@pytest.mark.parametrize("arrives_late", [False, True])
def test_a_disputed_top_up_waits_no_more_whenever_its_end_arrives(
    stripe: FakeStripe, alice: UUID, settings: Settings, arrives_late: bool
) -> None:
    settings.SOUK_TOP_UP_NEW_USD_DAY_MAX = 1000
    top_up = scenes.pay_in(stripe, alice, 300 * DOLLAR)
    dispute = stripe.open_dispute(top_up.charge_id)
    if not arrives_late:
        scenes.receive_events(stripe)
    stripe.close_dispute(dispute["id"], won=True)
    scenes.receive_events(stripe)
    assert available(alice) == 300 * DOLLAR
    assert ledger.balance(alice, AccountKind.JOB_HOLD) == 0


def test_a_refund_in_stripes_dashboard_takes_what_waits_because_its_payer_is_new(
    stripe: FakeStripe, alice: UUID
) -> None:
    fund(stripe)
    top_up = scenes.pay_in(stripe, alice, 300 * DOLLAR)
    assert available(alice) == 0
    refund_in_dashboard(stripe, top_up.charge_id, 30_000)
    scenes.receive_events(stripe)
    assert (available(alice), ledger.balance(alice, AccountKind.JOB_HOLD), loss()) == (0, 0, 0)
    scenes.assert_same_books(stripe)


@pytest.mark.django_db(transaction=True)
def test_of_several_who_settle_at_once_the_claim_is_paid_once(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 50 * DOLLAR)
    dispute = stripe.open_dispute(top_up.charge_id)
    stripe.close_dispute(dispute["id"], won=False)
    scenes.receive_events(stripe)
    deposits.credit(alice, 100 * DOLLAR, reference="cash", actor="operator")
    results = race([lambda: claims.settle(alice)] * 4 + [lambda: int(_ends_lost(dispute["id"]))] * 2)
    assert [one for one in results if isinstance(one, Exception)] == []
    assert (available(alice), loss()) == (85 * DOLLAR, 0)
    assert sum(int(one.amount) for one in CardDispute.objects.get().recoveries.all()) == 65 * DOLLAR
    scenes.assert_same_books(stripe)


def owe(stripe: FakeStripe, owner_id: UUID) -> None:
    """A chargeback of $50 is lost, and its fee of $15 is what the balance could not pay."""
    top_up = scenes.pay_in(stripe, owner_id, 50 * DOLLAR)
    dispute = stripe.open_dispute(top_up.charge_id)
    stripe.close_dispute(dispute["id"], won=False)
    scenes.receive_events(stripe)


@pytest.mark.parametrize("by", ["run", "hand", "retry"])
def test_who_owes_for_a_chargeback_pays_that_before_they_are_paid(
    stripe: FakeStripe, alice: UUID, settings: Settings, by: str
) -> None:
    be_on_loopback(settings)
    settings.SOUK_RESERVE_BPS = 0
    bob = uuid4()
    choose(bob, "fake:bob")
    choose(alice, "fake:refused:alice" if by == "retry" else "fake:alice")
    if by == "retry":
        earn(alice, DOLLAR)
        run_payouts()
        send()
        PayoutSettings.objects.update(destination="fake:alice", due_at=clock.now())
    owe(stripe, alice)
    owed = loss()
    assert owed in {15 * DOLLAR, 14 * DOLLAR}  # a payout that was refused has paid one dollar of it
    for provider in (alice, bob):
        earn(provider, 40 * DOLLAR)
    if by == "run":
        assert run_payouts() == 2
    elif by == "hand":
        paying.pay_now(alice, usd(), actor="alice")
    else:
        paying.retry(alice, Payout.objects.get(provider_id=alice).pk, actor="alice")
    newest = Payout.objects.filter(provider_id=alice).latest("created_at")
    assert (newest.amount, loss()) == (40 * DOLLAR - owed, 0)
    assert not Payout.objects.filter(provider_id=bob).exclude(amount=40 * DOLLAR).exists()
    scenes.assert_same_books(stripe)


def test_what_nobody_owes_is_one_question_for_any_number_of_providers(db: None) -> None:
    with CaptureQueriesContext(connection) as asked:
        assert claims.collect([uuid4() for _ in range(50)]) == 0
    assert len(asked) == 1


def test_a_claim_that_cannot_be_settled_stops_nobody_elses_pay(
    stripe: FakeStripe, alice: UUID, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_on_loopback(settings)
    settings.SOUK_RESERVE_BPS = 0
    bob = uuid4()
    for provider in (alice, bob):
        choose(provider, "fake:bob")
        owe(stripe, provider)
        earn(provider, 40 * DOLLAR)
    settle = claims.settle

    def settle_but_one(owner_id: UUID) -> int:
        if owner_id == alice:
            raise TransferRefused(why="a test says so")
        return settle(owner_id)

    monkeypatch.setattr(claims, "settle", settle_but_one)
    assert run_payouts() == 2
    assert Payout.objects.get(provider_id=bob).amount == 25 * DOLLAR


def test_cents_stay_cents(stripe: FakeStripe, alice: UUID) -> None:
    """What the ledger took for a claim is what Stripe took, to the cent."""
    fund(stripe)
    top_up = scenes.pay_in(stripe, alice, 50 * DOLLAR)
    refund_in_dashboard(stripe, top_up.charge_id, 1_234)
    scenes.receive_events(stripe)
    assert available(alice) == 50 * DOLLAR - 1_234 * MICROS_PER_CENT
    scenes.assert_same_books(stripe)
