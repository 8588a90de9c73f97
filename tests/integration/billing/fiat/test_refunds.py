"""What was not spent goes back to its card; what was spent does not."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.charging import holds
from billing.errors import InsufficientFunds
from billing.fiat import refunds
from billing.fiat.errors import RefundRefused, TopUpNotFound
from billing.models import TopUp, TopUpRefund
from marketplace.foundation.models import OutboxMessage
from tests.fakes.stripe import FakeStripe, Fault
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.scenes import DOLLAR, available
from tests.integration.billing.scenes import race

pytestmark = pytest.mark.django_db


def ask_back(top_up: TopUp, amount: int | None = None) -> TopUpRefund:
    return refunds.request_refund(top_up.pk, owner_id=top_up.owner_id, actor="alice", amount=amount)


def test_all_of_it_goes_back_at_once_and_the_books_agree(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice)
    scenes.fund_platform(stripe)
    refund = ask_back(top_up)
    assert available(alice) == 0  # from the time of the request
    scenes.call_due()
    refund.refresh_from_db()
    assert refund.state == "succeeded"
    assert stripe.get(top_up.charge_id)["amount_refunded"] == 5000
    scenes.receive_events(stripe)
    scenes.assert_same_books(stripe)


def test_a_refund_that_the_platforms_balance_cannot_pay_waits_for_it(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice)
    refund = ask_back(top_up)  # all of it, and the fee of the payment is gone
    scenes.call_due()
    refund.refresh_from_db()
    assert refund.state == "requested" and available(alice) == 0
    scenes.fund_platform(stripe)
    stripe.clock.advance(60)
    scenes.receive_events(stripe)
    refund.refresh_from_db()
    assert refund.state == "succeeded"
    scenes.assert_same_books(stripe)


def test_a_part_may_go_back_and_never_more_than_was_paid(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice)
    ask_back(top_up, 30 * DOLLAR)
    with pytest.raises(RefundRefused, match=r"\$20\.00 of it is left"):
        ask_back(top_up, 21 * DOLLAR)
    ask_back(top_up)
    with pytest.raises(RefundRefused, match=r"\$0\.00 of it is left"):
        ask_back(top_up)
    scenes.call_until_done()
    scenes.receive_events(stripe)
    assert stripe.get(top_up.charge_id)["amount_refunded"] == 5000
    scenes.assert_same_books(stripe)


@pytest.mark.parametrize("amount", [0, -DOLLAR, 1, 5001, 10**70])
def test_nonsense_amounts_are_refused(stripe: FakeStripe, alice: UUID, amount: int) -> None:
    top_up = scenes.pay_in(stripe, alice)
    with pytest.raises(RefundRefused):
        ask_back(top_up, amount)
    assert available(alice) == 50 * DOLLAR


def test_what_was_spent_does_not_go_back(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice)
    holds.place_hold(owner_id=alice, job_id=uuid4(), amount=45 * DOLLAR)
    with pytest.raises(InsufficientFunds):
        ask_back(top_up)
    ask_back(top_up, 5 * DOLLAR)


def test_a_refused_refund_gives_the_balance_back(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice)
    refund = ask_back(top_up)
    TopUp.objects.filter(pk=top_up.pk).update(charge_id="ch_unknown")
    scenes.call_due()
    refund.refresh_from_db()
    assert refund.state == "failed" and refund.message
    assert available(alice) == 50 * DOLLAR


@pytest.mark.parametrize("is_received_in_between", [True, False])
def test_a_refund_that_the_bank_sends_back_is_balance_again(
    stripe: FakeStripe, alice: UUID, is_received_in_between: bool
) -> None:
    top_up = scenes.pay_in(stripe, alice)
    scenes.fund_platform(stripe)
    refund = ask_back(top_up)
    scenes.call_due()
    if is_received_in_between:
        scenes.receive_events(stripe)
    refund.refresh_from_db()
    stripe.fail_refund(refund.stripe_id)
    scenes.receive_events(stripe)
    refund.refresh_from_db()
    assert refund.state == "failed"
    assert available(alice) == 50 * DOLLAR
    scenes.assert_same_books(stripe)


@pytest.mark.parametrize("fault", [Fault.RESET_AFTER, Fault.ERROR_AFTER, Fault.ERROR_BEFORE, Fault.RATE_LIMITED])
def test_a_refund_is_made_once_whatever_happens_to_the_answer(stripe: FakeStripe, alice: UUID, fault: Fault) -> None:
    top_up = scenes.pay_in(stripe, alice)
    ask_back(top_up, 20 * DOLLAR)
    message = OutboxMessage.objects.get(kind="stripe.refund")
    stripe.script(fault, "/v1/refunds", times=2)
    scenes.call_until_done()
    assert stripe.effects(message.pk, kind="refund") == 1
    assert available(alice) == 30 * DOLLAR
    scenes.receive_events(stripe)
    scenes.assert_same_books(stripe)


def test_a_refund_asked_for_while_stripe_is_not_set_up_is_sent_once_it_is(
    stripe: FakeStripe, alice: UUID, settings: Any
) -> None:
    top_up = scenes.pay_in(stripe, alice)
    key, settings.SOUK_STRIPE_KEY = settings.SOUK_STRIPE_KEY, ""
    refund = ask_back(top_up, 20 * DOLLAR)
    message = OutboxMessage.objects.get(kind="stripe.refund")
    scenes.call_due()
    refund.refresh_from_db()
    assert refund.state == "requested" and available(alice) == 30 * DOLLAR
    settings.SOUK_STRIPE_KEY = key
    scenes.call_until_done()
    assert stripe.effects(message.pk, kind="refund") == 1
    scenes.receive_events(stripe)
    scenes.assert_same_books(stripe)


def test_a_refund_made_at_stripe_itself_is_booked_once(stripe: FakeStripe, alice: UUID) -> None:
    from billing.rails.stripe import client as stripe_client

    top_up = scenes.pay_in(stripe, alice)
    holds.place_hold(owner_id=alice, job_id=uuid4(), amount=45 * DOLLAR)
    key = stripe_client.Key("by hand")
    stripe_client.connect().refund_charge(charge_id=top_up.charge_id, amount_cents=2000, metadata={}, key=key)
    scenes.receive_events(stripe)
    scenes.receive_events(stripe)
    assert available(alice) == 0
    assert ledger.balance(None, AccountKind.CHARGEBACK_LOSS) == -15 * DOLLAR
    scenes.assert_same_books(stripe)


def test_what_still_waits_can_go_back(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 500 * DOLLAR)
    ask_back(top_up, 100 * DOLLAR)
    assert available(alice) == 0 and ledger.balance(alice, AccountKind.JOB_HOLD) == 400 * DOLLAR
    scenes.call_due()
    scenes.assert_same_books(stripe)


def test_mallory_cannot_refund_alices(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice)
    with pytest.raises(TopUpNotFound):
        refunds.request_refund(top_up.pk, owner_id=uuid4(), actor="mallory")


@pytest.mark.django_db(transaction=True)
def test_of_many_who_ask_at_once_no_more_is_sent_than_was_paid(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice)
    results = race([lambda: ask_back(top_up, 20 * DOLLAR)] * 6)
    assert sum(not isinstance(one, Exception) for one in results) == 2
    assert available(alice) == 10 * DOLLAR
    scenes.call_until_done()
    assert stripe.get(top_up.charge_id)["amount_refunded"] == 4000
    scenes.assert_same_books(stripe)
