"""A bank reverses a payment: booked at once, recovered in order, given back when won, however it is reported."""

from __future__ import annotations

import random
from uuid import UUID, uuid4

import pytest
from pytest_django import Settings

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_account, open_accounts
from billing.charging import holds
from billing.errors import AccountFrozen
from billing.fiat import chargebacks, events, recovery
from billing.fiat.errors import RefundRefused
from billing.models import Account, Alert, CardDispute, ConnectAccount, Payout, TopUp, TransferReversal
from billing.rails.stripe.records import EventRecord
from billing.states import PayoutState
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.losing import FEE, earned, loss, run_job
from tests.integration.billing.fiat.scenes import DOLLAR, available
from tests.integration.billing.scenes import race

pytestmark = pytest.mark.django_db


@pytest.fixture
def bob() -> UUID:
    return uuid4()


def keep_in_reserve(provider: UUID, usd_micros: int) -> None:
    names = [AccountName(kind, provider) for kind in (AccountKind.PROVIDER_AVAILABLE, AccountKind.PROVIDER_RESERVE)]
    available_account, reserve = open_accounts(names)
    ledger.post([ledger.NewTransfer(available_account, reserve, usd_micros, TransferCode.RESERVE_KEPT)])


def test_the_customers_own_balance_pays_first(stripe: FakeStripe, alice: UUID, bob: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    scenes.pay_in(stripe, alice, 50 * DOLLAR)
    run_job(alice, bob, 10 * DOLLAR)
    stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    assert available(alice) == 25 * DOLLAR  # 150 - 10 spent - 100 - 15 for the bank
    assert earned(bob) == 10 * DOLLAR and loss() == 0
    scenes.assert_same_books(stripe)


def test_then_reserves_then_balances_of_those_who_were_paid_and_the_rest_is_ours(
    stripe: FakeStripe, alice: UUID, bob: UUID
) -> None:
    carol, dave = uuid4(), uuid4()
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    run_job(alice, bob, 40 * DOLLAR)
    run_job(alice, carol, 30 * DOLLAR, released=False)
    keep_in_reserve(bob, 5 * DOLLAR)
    other = uuid4()
    scenes.pay_in(stripe, other, 50 * DOLLAR)
    run_job(other, dave, 20 * DOLLAR)
    run_job(other, bob, 20 * DOLLAR)
    stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    dispute = CardDispute.objects.get()
    assert dispute.loss == 115 * DOLLAR
    assert available(alice) == 0
    assert ledger.balance(bob, AccountKind.PROVIDER_RESERVE) == 0
    assert earned(bob) == 20 * DOLLAR  # what somebody else paid him stays his
    assert earned(carol) + ledger.balance(carol, AccountKind.PROVIDER_PENDING) == 0
    assert earned(dave) == 20 * DOLLAR
    assert loss() == FEE
    taken = [
        (one.account.kind, one.amount) for one in dispute.recoveries.select_related("account").order_by("transfer__seq")
    ]
    assert [kind for kind, _ in taken][:2] == ["customer_available", "provider_reserve"]
    scenes.assert_same_books(stripe)


def test_a_disputed_customer_is_frozen_until_the_operator_decides(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    scenes.pay_in(stripe, alice, 100 * DOLLAR)
    stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    with pytest.raises(AccountFrozen):
        holds.place_hold(owner_id=alice, job_id=uuid4(), amount=DOLLAR)
    with pytest.raises(RefundRefused, match="bank"):
        from billing.fiat import refunds

        refunds.request_refund(top_up.pk, owner_id=alice, actor="alice")
    Account.objects.filter(owner_id=alice).update(is_frozen=False)
    scenes.receive_events(stripe)
    stripe.events.clear()
    chargebacks.refresh_dispute(CardDispute.objects.get().stripe_id)
    holds.place_hold(owner_id=alice, job_id=uuid4(), amount=DOLLAR)


def test_a_second_dispute_takes_from_a_frozen_balance_too(stripe: FakeStripe, alice: UUID) -> None:
    first, second = scenes.pay_in(stripe, alice, 50 * DOLLAR), scenes.pay_in(stripe, alice, 50 * DOLLAR)
    scenes.pay_in(stripe, alice, 100 * DOLLAR)
    stripe.open_dispute(first.charge_id)
    scenes.receive_events(stripe)
    stripe.open_dispute(second.charge_id)
    scenes.receive_events(stripe)
    assert available(alice) == 70 * DOLLAR
    assert open_account(AccountKind.CUSTOMER_AVAILABLE, alice).is_frozen
    scenes.assert_same_books(stripe)


def test_a_dispute_that_is_won_gives_everybody_everything_back(stripe: FakeStripe, alice: UUID, bob: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    run_job(alice, bob, 40 * DOLLAR)
    keep_in_reserve(bob, 5 * DOLLAR)
    dispute = stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    assert (available(alice), earned(bob)) == (0, 0)
    [alert] = Alert.objects.open().filter(kind="card_dispute")
    assert "$100.00" in alert.message and alert.noticed == 1
    stripe.close_dispute(dispute["id"], won=True)
    scenes.receive_events(stripe)
    scenes.receive_events(stripe)
    assert CardDispute.objects.get().state == "won"
    assert not Alert.objects.open().filter(kind="card_dispute").exists()
    assert (available(alice), earned(bob)) == (60 * DOLLAR, 35 * DOLLAR)
    assert ledger.balance(bob, AccountKind.PROVIDER_RESERVE) == 5 * DOLLAR
    assert loss() == FEE  # the bank keeps that
    scenes.assert_same_books(stripe)


def test_a_dispute_that_is_lost_stays_taken(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    dispute = stripe.open_dispute(top_up.charge_id)
    stripe.close_dispute(dispute["id"], won=False)
    scenes.receive_events(stripe)
    assert CardDispute.objects.get().state == "lost"
    assert available(alice) == 0 and loss() == FEE
    scenes.assert_same_books(stripe)


def test_an_inquiry_moves_no_money(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    stripe.open_dispute(top_up.charge_id, is_inquiry=True)
    scenes.receive_events(stripe)
    assert CardDispute.objects.get().state == "inquiry"
    assert available(alice) == 100 * DOLLAR
    assert not open_account(AccountKind.CUSTOMER_AVAILABLE, alice).is_frozen


def test_what_waited_because_its_payer_was_new_is_there_to_be_taken(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 500 * DOLLAR)
    stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    assert ledger.balance(alice, AccountKind.JOB_HOLD) == 0
    assert loss() == FEE
    scenes.assert_same_books(stripe)


@pytest.mark.parametrize("seed", range(6))
def test_the_order_in_which_its_events_arrive_does_not_matter(
    stripe: FakeStripe, alice: UUID, bob: UUID, seed: int
) -> None:
    """Even the payment may be reported after the dispute about it was won."""
    top_up = scenes.ask(alice, 100 * DOLLAR)
    scenes.call_due()
    top_up.refresh_from_db()
    stripe.pay_session(top_up.session_id)
    [charge] = stripe.store.all("charge")
    dispute = stripe.open_dispute(charge["id"])
    stripe.close_dispute(dispute["id"], won=bool(seed % 2))
    deliveries = [EventRecord.read(one) for one in stripe.events] * 2
    random.Random(seed).shuffle(deliveries)
    for one in deliveries:
        events.store([one])
        scenes.work_off(1)
    assert available(alice) == (100 * DOLLAR if seed % 2 else 0)
    assert CardDispute.objects.get().state == ("won" if seed % 2 else "lost")
    assert open_account(AccountKind.CUSTOMER_AVAILABLE, alice).is_frozen
    scenes.assert_same_books(stripe)


def transferred(stripe: FakeStripe, provider: UUID, usd_micros: int, *, is_sent_on: bool = True) -> Payout:
    """What went out to a provider through the rail, as payouts book it, and from there to the bank or not yet."""
    from billing.rails.stripe.payout_rail import StripePayouts

    account = stripe.onboard(stripe_account(provider))
    ConnectAccount.objects.filter(owner_id=provider).update(is_payable=True)
    if not is_sent_on:
        stripe.stop_payouts(account["id"])
    names = [AccountName(AccountKind.PROVIDER_AVAILABLE, provider), AccountName(AccountKind.STRIPE_BALANCE)]
    balance, mirror = open_accounts(names)
    clearing = open_account(AccountKind.PAYOUT_CLEARING, provider)
    [out] = ledger.post([ledger.NewTransfer(balance, clearing, usd_micros, TransferCode.PAYOUT)])
    payout = Payout.objects.create(
        provider_id=provider,
        rail="stripe",
        asset_id=balance.asset_id,
        amount=usd_micros,
        destination=account["id"],
        pending_transfer=out,
    )
    outcome = StripePayouts().submit([payout])[str(payout.pk)]
    ledger.post(
        [ledger.NewTransfer(clearing, mirror, usd_micros, TransferCode.PAYOUT, external_ref=outcome.external_id)]
    )
    for state in (PayoutState.RESERVED, PayoutState.SUBMITTED, PayoutState.CONFIRMED):
        Payout.objects.filter(pk=payout.pk).update(state=state, external_id=outcome.external_id)
    return payout


def stripe_account(provider: UUID) -> str:
    from billing.fiat import accounts

    accounts.request_account(provider, country="US")
    scenes.call_until_done()
    return str(accounts.find(provider).stripe_id)


@pytest.mark.parametrize("is_won", [False, True])
def test_what_was_transferred_already_is_asked_back(stripe: FakeStripe, alice: UUID, bob: UUID, is_won: bool) -> None:
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    scenes.fund_platform(stripe)
    run_job(alice, bob, 60 * DOLLAR)
    transferred(stripe, bob, 60 * DOLLAR, is_sent_on=False)
    dispute = stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    reversal = TransferReversal.objects.get()
    assert (reversal.state, reversal.amount) == ("requested", 60 * DOLLAR)
    scenes.call_until_done()
    reversal.refresh_from_db()
    assert reversal.state == "succeeded" and loss() == FEE
    assert stripe.effects(OutboxMessage.objects.get(kind=recovery.REVERSAL_CALL).pk) == 1
    scenes.assert_same_books(stripe)
    if is_won:
        stripe.close_dispute(dispute["id"], won=True)
        scenes.receive_events(stripe)
        assert (available(alice), earned(bob)) == (40 * DOLLAR, 60 * DOLLAR)
        scenes.assert_same_books(stripe)


def test_what_cannot_be_had_back_is_the_platforms_loss(stripe: FakeStripe, alice: UUID, bob: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    scenes.fund_platform(stripe)
    run_job(alice, bob, 60 * DOLLAR)
    transferred(stripe, bob, 60 * DOLLAR)
    stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    scenes.call_until_done()
    reversal = TransferReversal.objects.get()
    assert reversal.state == "refused" and reversal.message
    assert loss() == 60 * DOLLAR + FEE
    scenes.assert_same_books(stripe)


def test_providers_may_be_left_out_of_it(stripe: FakeStripe, alice: UUID, bob: UUID, settings: Settings) -> None:
    settings.SOUK_CHARGEBACK_PROVIDER_DAYS = 0
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    run_job(alice, bob, 60 * DOLLAR)
    stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    assert earned(bob) == 60 * DOLLAR and loss() == 60 * DOLLAR + FEE


def test_the_evidence_lists_what_ran_and_is_sent_once(stripe: FakeStripe, alice: UUID, bob: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    run_job(alice, bob, 60 * DOLLAR)
    made = stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    dispute = CardDispute.objects.get()
    assert "$60.00" in dispute.evidence and str(top_up.pk) in dispute.evidence and str(bob) not in dispute.evidence
    for _ in range(2):
        chargebacks.request_evidence(dispute.pk, text=dispute.evidence, actor="operator")
        scenes.call_until_done()
    dispute_at_stripe = stripe.get(made["id"])
    assert dispute_at_stripe["evidence"]["uncategorized_text"] == dispute.evidence
    assert dispute_at_stripe["evidence_details"]["submission_count"] == 1


@pytest.mark.django_db(transaction=True)
def test_two_who_receive_it_at_once_book_it_once(stripe: FakeStripe, alice: UUID, bob: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    TopUp.objects.filter(pk=top_up.pk).update(created_at=clock.now())
    run_job(alice, bob, 60 * DOLLAR)
    made = stripe.open_dispute(top_up.charge_id)
    results = race([lambda: chargebacks.refresh_dispute(made["id"])] * 6)
    assert [one for one in results if isinstance(one, Exception)] == []
    assert CardDispute.objects.get().loss == 115 * DOLLAR
    assert (available(alice), earned(bob), loss()) == (0, 0, FEE)
    scenes.assert_same_books(stripe)
