"""What the card rail reports of a payment, however it was left: unpaid, unanswered, refused or too old."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from billing.dispatch import Hopeless
from billing.models import TopUp
from billing.rails.errors import RailError
from billing.rails.payments_in import PaymentCall, PaymentFate, PaymentOutcome
from billing.rails.stripe.booking import ForeignCurrency
from billing.rails.stripe.client import connect
from billing.rails.stripe.payment_rail import CHARGE_HOURS_MAX, PAGE_LIFE, StripePayments, outcome_of
from billing.rails.stripe.records import Intent
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from tests.fakes.stripe import FakeStripe, Fault
from tests.integration.billing.fiat import scenes

pytestmark = pytest.mark.django_db


def find(top_up: TopUp) -> PaymentOutcome:
    return StripePayments().find(TopUp.objects.get(pk=top_up.pk))


def leave_unanswered(stripe: FakeStripe, top_up: TopUp, fault: Fault) -> None:
    """The call is made once without an answer, and then given up."""
    stripe.script(fault, "/v1/payment_intents")
    scenes.call_due()
    OutboxMessage.objects.filter(business_key=f"top_up:{top_up.pk}").update(state=OutboxMessage.State.FAILED)


def grow_old(top_up: TopUp, age: timedelta) -> None:
    TopUp.objects.filter(pk=top_up.pk).update(created_at=clock.now() - age)


def test_a_page_is_under_way_until_it_is_paid(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.ask(alice)
    scenes.call_due()
    assert find(top_up).fate is PaymentFate.UNDER_WAY
    top_up.refresh_from_db()
    stripe.pay_session(top_up.session_id)
    found = find(top_up)
    assert (found.fate, found.receipt is not None) == (PaymentFate.PAID, True)
    assert found.receipt is not None
    assert (found.receipt.amount, found.receipt.owner_id) == (top_up.amount, alice)
    stripe.clock.advance(25 * 3600)
    assert find(top_up).fate is PaymentFate.PAID, "a page that expires later was paid all the same"


def test_a_page_that_expired_unpaid_is_found_expired(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.ask(alice)
    scenes.call_due()
    stripe.clock.advance(25 * 3600)
    assert (find(top_up).fate, find(top_up).reason) == (PaymentFate.EXPIRED, "expired")


def test_a_charged_card_is_found_by_its_payment(stripe: FakeStripe, alice: UUID) -> None:
    scenes.save_card(stripe, alice)
    top_up = scenes.ask(alice, method="saved_card")
    scenes.call_due()
    assert find(top_up).fate is PaymentFate.PAID


def test_a_request_whose_call_is_still_to_be_made_is_under_way(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.ask(alice)
    grow_old(top_up, 2 * PAGE_LIFE)
    assert find(top_up).fate is PaymentFate.UNDER_WAY
    OutboxMessage.objects.all().delete()
    assert find(top_up).fate is PaymentFate.UNDER_WAY


def test_a_charge_without_an_answer_is_found_by_its_mark(stripe: FakeStripe, alice: UUID) -> None:
    scenes.save_card(stripe, alice)
    top_up = scenes.ask(alice, method="saved_card")
    leave_unanswered(stripe, top_up, Fault.RESET_AFTER)
    assert find(top_up).fate is PaymentFate.PAID


def test_a_charge_that_never_reached_stripe_expires_after_a_day(stripe: FakeStripe, alice: UUID) -> None:
    scenes.save_card(stripe, alice)
    top_up = scenes.ask(alice, method="saved_card")
    leave_unanswered(stripe, top_up, Fault.RESET_BEFORE)
    assert find(top_up).fate is PaymentFate.UNDER_WAY
    grow_old(top_up, PAGE_LIFE + timedelta(minutes=1))
    assert (find(top_up).fate, find(top_up).reason) == (PaymentFate.EXPIRED, "not_reached")
    assert stripe.store.all("payment_intent") == []


def test_a_customer_whom_stripe_never_knew_was_never_charged(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.ask(alice)
    OutboxMessage.objects.update(state=OutboxMessage.State.FAILED)
    grow_old(top_up, PAGE_LIFE + timedelta(minutes=1))
    assert find(top_up).reason == "not_reached"


def test_a_card_that_was_removed_is_refused_without_a_payment(stripe: FakeStripe, alice: UUID) -> None:
    card = scenes.save_card(stripe, alice)
    connect().remove_card(card.stripe_id)
    top_up = scenes.ask(alice, method="saved_card")
    scenes.call_due()
    top_up.refresh_from_db()
    assert (top_up.state, scenes.available(alice)) == ("failed", 0)
    assert top_up.message
    assert not [one for one in stripe.store.all("payment_intent") if one["status"] != "canceled"]


def test_a_refusal_whose_answer_was_lost_leaves_nothing_to_be_paid_later(stripe: FakeStripe, alice: UUID) -> None:
    """Looked up, it is a payment that waits for another card; its owner is away, so it is cancelled."""
    scenes.save_card(stripe, alice, "pm_card_chargeCustomerFail")
    top_up = scenes.ask(alice, method="saved_card")
    stripe.script(Fault.RESET_AFTER, "/v1/payment_intents")
    scenes.call_until_done()
    top_up.refresh_from_db()
    assert top_up.state == "failed"
    assert [one["status"] for one in stripe.store.all("payment_intent")] == ["canceled"]


def test_a_charge_of_yesterday_is_looked_up_and_credited(stripe: FakeStripe, alice: UUID) -> None:
    scenes.save_card(stripe, alice)
    top_up = scenes.ask(alice, method="saved_card")
    stripe.script(Fault.RESET_AFTER, "/v1/payment_intents")
    scenes.call_due()
    OutboxMessage.objects.update(created_at=clock.now() - timedelta(hours=CHARGE_HOURS_MAX, minutes=1))
    scenes.call_until_done()
    top_up.refresh_from_db()
    assert top_up.state == "succeeded"
    assert len(stripe.store.all("payment_intent")) == 1


def test_a_card_that_is_to_be_kept_is_marked_so_on_the_page(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, save_card=True)
    [intent] = stripe.store.all("payment_intent")
    assert intent["setup_future_usage"] == "off_session"
    assert top_up.state == "succeeded"


def test_a_charge_that_names_no_card_is_hopeless(stripe: FakeStripe, alice: UUID) -> None:
    scenes.save_card(stripe, alice)
    top_up = scenes.ask(alice, method="saved_card")
    top_up.card = None
    message = OutboxMessage.objects.get()
    with pytest.raises(Hopeless, match="names no card"):
        StripePayments().open(top_up, PaymentCall(message.pk, created_at=message.created_at, attempts=1))
    assert stripe.store.all("payment_intent") == []


def test_a_paid_payment_waits_until_its_fee_is_known_in_dollars(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice)
    intent = connect().fetch_intent(stripe.store.all("payment_intent")[0]["id"])
    assert intent.booking is not None
    with pytest.raises(RailError, match="what it cost"):
        outcome_of(replace(intent, booking=None), top_up)
    with pytest.raises(ForeignCurrency, match="is in eur, not in usd"):
        outcome_of(replace(intent, booking=replace(intent.booking, currency="eur")), top_up)


@pytest.mark.parametrize(
    ("method", "status", "fate"),
    [
        ("checkout", "requires_payment_method", PaymentFate.UNDER_WAY),
        ("checkout", "canceled", PaymentFate.UNDER_WAY),
        ("saved_card", "processing", PaymentFate.UNDER_WAY),
        ("saved_card", "requires_action", PaymentFate.FAILED),
        ("saved_card", "canceled", PaymentFate.FAILED),
    ],
)
def test_only_on_a_page_may_another_card_be_tried(method: str, status: str, fate: PaymentFate) -> None:
    intent = Intent.read({"id": "pi_1", "status": status, "amount": 100, "currency": "usd"})
    assert outcome_of(intent, TopUp(method=method)).fate is fate
