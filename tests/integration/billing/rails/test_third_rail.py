"""A third rail is a module and a row of the registry: money comes in and leaves by it, and nothing else is changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from pytest_django import Settings

from billing.account_kinds import AccountKind
from billing.books.balances import balance
from billing.charging import holds, settlement
from billing.charging.settlement import LeaseCharge
from billing.fiat import refunds, sweeping, topups
from billing.fiat.errors import CardsUnavailable, RefundRefused
from billing.models import Deposit, Payout, TopUp
from billing.payouts import paying, preferences, submission
from billing.payouts.errors import DestinationRefused
from billing.payouts.preferences import DesiredSettings
from billing.rails import registry
from billing.reconciliation.reconciling import reconcile
from marketplace.foundation import clock
from tests.integration.billing.payouts.scenes import send, spendable, states, usd
from tests.integration.billing.rails import toy_rail
from tests.integration.billing.rails.toy_rail import BANK, PAYMENT_COST, PAYOUT_COST
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, available

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[None]:
    """The toy's row is in the registry, and it is the only rail that is on."""
    monkeypatch.setitem(registry.RAILS, "toy", toy_rail.ROW)
    settings.SOUK_STRIPE_KEY, settings.SOUK_FAKE_MONEY = "", False
    settings.SOUK_PAYOUT_RAILS, settings.SOUK_RESERVE_BPS = ["toy"], 0
    yield
    BANK.moved.clear()
    BANK.asked = 0


def pay_in(owner_id: UUID, amount: int) -> TopUp:
    """The owner requests a top-up, and pays on the toy's page."""
    top_up = topups.request_top_up(owner_id, amount, method=TopUp.Method.CHECKOUT, actor="alice")
    send()
    BANK.customer_pays(top_up)
    return TopUp.objects.get(pk=top_up.pk)


def test_a_payment_by_a_third_rail_is_credited_once(alice: UUID) -> None:
    before = available(alice)
    top_up = pay_in(alice, 20 * DOLLAR)
    assert (top_up.rail, top_up.state, top_up.checkout_url) == ("toy", "open", f"https://toy.example.org/{top_up.pk}")
    assert available(alice) == before  # nothing was reported yet
    for _ in range(3):
        assert topups.refresh(top_up).state == "succeeded"
    assert (available(alice) - before, BANK.asked) == (20 * DOLLAR, 1)
    deposit = Deposit.objects.get(rail="toy")
    assert (deposit.reference, deposit.amount) == (f"toy_in_{top_up.pk}", 20 * DOLLAR)
    assert_ledger_is_true()


def test_the_sweep_asks_a_third_rail_after_what_nobody_reported(alice: UUID) -> None:
    before, top_up = available(alice), pay_in(alice, 20 * DOLLAR)
    TopUp.objects.filter(pk=top_up.pk).update(created_at=clock.now() - 2 * sweeping.PATIENCE)
    assert (sweeping.sweep(), sweeping.sweep(), available(alice) - before) == (1, 0, 20 * DOLLAR)


def test_a_third_rail_takes_only_what_it_says_and_sends_nothing_back(alice: UUID) -> None:
    with pytest.raises(CardsUnavailable):
        topups.request_top_up(alice, 20 * DOLLAR, method=TopUp.Method.SAVED_CARD, actor="alice")
    with pytest.raises(CardsUnavailable):
        topups.request_top_up(alice, 20 * DOLLAR, method=TopUp.Method.CHECKOUT, actor="alice", rail="stripe")
    top_up = topups.refresh(pay_in(alice, 20 * DOLLAR))
    with pytest.raises(RefundRefused):
        refunds.request_refund(top_up.pk, owner_id=alice, actor="alice")


def test_money_goes_round_by_a_third_rail_and_reconciles(alice: UUID, bob: UUID) -> None:
    topups.refresh(pay_in(alice, 20 * DOLLAR))
    job_id = uuid4()
    holds.place_hold(owner_id=alice, job_id=job_id, amount=12 * DOLLAR)
    settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, 12 * DOLLAR)], fee_bps=0)
    settlement.release_pending()
    with pytest.raises(DestinationRefused):
        preferences.choose(bob, usd(), DesiredSettings("toy", "elsewhere"), actor="bob")
    preferences.choose(bob, usd(), DesiredSettings("toy", "toy:bob", schedule="manual"), actor="bob")
    paying.pay_now(bob, usd(), actor="bob")
    send()
    assert states(bob) == ["submitted"]
    Payout.objects.update(checked_at=clock.now() - timedelta(days=1))
    assert submission.follow_payouts() == 1
    assert (states(bob), spendable(bob)) == (["confirmed"], 0)
    assert Payout.objects.get().cost == PAYOUT_COST
    mirror = -balance(None, AccountKind.STRIPE_BALANCE)
    assert mirror == 20 * DOLLAR - PAYMENT_COST - 12 * DOLLAR - PAYOUT_COST
    report = reconcile(reason="by hand")
    assert (report.is_clean, report.unanswered, report.differences.count()) == (True, {}, 0)
    [position] = report.positions.all()
    assert (position.rail, position.ledger, position.outside) == ("toy", mirror, mirror)
    assert_ledger_is_true()


def test_a_difference_at_a_third_rail_is_found(alice: UUID) -> None:
    pay_in(alice, 20 * DOLLAR)
    BANK.move("theft", -5 * DOLLAR)
    at = clock.now() - timedelta(hours=1)
    BANK.moved["theft"] = (-5 * DOLLAR, at)
    report = reconcile(reason="by hand")
    assert [row.ref for row in report.differences.filter(explanation="")] == ["theft"]
