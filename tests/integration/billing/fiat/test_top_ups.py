"""Paying in: by Stripe's page, by a saved card, under limits; credited once, on Stripe's word."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection
from pytest_django import Settings

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.errors import InsufficientFunds
from billing.fiat import events, sweeping, topups
from billing.fiat.errors import CardNotFound, CardsUnavailable, TopUpLimitReached, TopUpRefused
from billing.models import Deposit, TopUp
from billing.rails.stripe import client
from billing.states.fiat import TopUpState
from marketplace.foundation import clock
from marketplace.foundation.models import Event, OutboxMessage
from tests.fakes.stripe import FakeStripe, Fault
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.scenes import DOLLAR, available
from tests.integration.billing.scenes import race

pytestmark = pytest.mark.django_db


def test_a_paid_page_is_credited_whole_and_the_fee_is_ours(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.ask(alice)
    assert top_up.state == "requested"
    scenes.call_due()
    top_up.refresh_from_db()
    assert top_up.state == "open" and top_up.checkout_url.startswith("http")
    assert available(alice) == 0

    stripe.pay_session(top_up.session_id)
    scenes.receive_events(stripe)
    top_up.refresh_from_db()
    assert top_up.state == "succeeded"
    assert available(alice) == 50 * DOLLAR
    assert top_up.fee == ledger.balance(None, AccountKind.STRIPE_FEE_EXPENSE) * -1 > 0
    scenes.assert_same_books(stripe)


def test_what_is_written_at_stripe_leads_back_to_us(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice)
    message = OutboxMessage.objects.get()
    marks = {"outbox_id": str(message.pk), "top_up_id": str(top_up.pk), "organisation_id": str(alice)}
    assert stripe.get(top_up.intent_id)["metadata"] == marks
    assert message.external_id == top_up.session_id


def test_a_saved_card_is_charged_while_its_owner_is_away(stripe: FakeStripe, alice: UUID) -> None:
    card = scenes.save_card(stripe, alice)
    assert (card.last4, card.is_default) == ("4242", True)
    top_up = scenes.ask(alice, method="saved_card")
    scenes.call_due()
    top_up.refresh_from_db()
    assert top_up.state == "succeeded" and available(alice) == 50 * DOLLAR
    scenes.receive_events(stripe)
    assert available(alice) == 50 * DOLLAR
    scenes.assert_same_books(stripe)


@pytest.mark.parametrize("payment_method", ["pm_card_chargeCustomerFail", "pm_card_authenticationRequired"])
def test_a_card_that_is_refused_ends_the_top_up_and_can_never_be_charged_later(
    stripe: FakeStripe, alice: UUID, payment_method: str
) -> None:
    scenes.save_card(stripe, alice, payment_method)
    top_up = scenes.ask(alice, method="saved_card")
    scenes.call_due()
    scenes.receive_events(stripe)
    top_up.refresh_from_db()
    assert top_up.state == "failed" and top_up.reason and top_up.message
    assert available(alice) == 0
    [intent] = stripe.store.all("payment_intent")
    assert intent["status"] == "canceled"
    assert OutboxMessage.objects.get().state == "done"


def test_a_page_that_nobody_pays_on_expires(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.ask(alice)
    scenes.call_due()
    stripe.clock.advance(25 * 3600)
    scenes.receive_events(stripe)
    top_up.refresh_from_db()
    assert (top_up.state, top_up.reason) == ("expired", "expired")
    assert available(alice) == 0


def test_money_that_came_is_credited_even_to_a_top_up_that_we_gave_up(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.ask(alice)
    scenes.call_due()
    top_up.refresh_from_db()
    topups.end_top_up(top_up, TopUpState.EXPIRED, reason="expired", message="")
    stripe.pay_session(top_up.session_id)
    scenes.receive_events(stripe)
    top_up.refresh_from_db()
    assert top_up.state == "succeeded" and available(alice) == 50 * DOLLAR
    moves = Event.objects.filter(subject_id=top_up.pk).order_by("id").values_list("to_state", flat=True)
    assert list(moves) == ["requested", "open", "expired", "succeeded"]


FAULTS = [
    Fault.TIMEOUT_AFTER,
    Fault.TIMEOUT_BEFORE,
    Fault.RESET_AFTER,
    Fault.RESET_BEFORE,
    Fault.ERROR_AFTER,
    Fault.ERROR_BEFORE,
    Fault.UNAVAILABLE,
    Fault.RATE_LIMITED,
    Fault.KEY_IN_USE,
]


@pytest.mark.parametrize(
    ("fault", "times"), [*((fault, 1) for fault in FAULTS), (Fault.ERROR_AFTER, 3), (Fault.ERROR_BEFORE, 3)]
)
def test_a_card_is_charged_once_whatever_happens_to_the_answer(
    stripe: FakeStripe, alice: UUID, fault: Fault, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes.save_card(stripe, alice)
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", (5.0, 1.0))
    client._client.cache_clear()  # from here on each call that is late is made again
    top_up = scenes.ask(alice, method="saved_card")
    message = OutboxMessage.objects.get()
    stripe.script(fault, "/v1/payment_intents", times=times)
    scenes.call_until_done()
    top_up.refresh_from_db()
    assert top_up.state == "succeeded"
    assert stripe.effects(message.pk, kind="payment_intent") == 1
    assert available(alice) == 50 * DOLLAR
    scenes.receive_events(stripe)
    scenes.assert_same_books(stripe)


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.RESET_AFTER])
@pytest.mark.parametrize("path", ["/v1/customers", "/v1/checkout/sessions"])
def test_a_page_is_made_whatever_happens_to_the_answer(
    stripe: FakeStripe, alice: UUID, fault: Fault, path: str
) -> None:
    stripe.script(fault, path, times=2)
    scenes.pay_in(stripe, alice)
    assert available(alice) == 50 * DOLLAR
    assert len(stripe.store.all("checkout.session")) == 1, "two pages for one request could both be paid"


def test_a_charge_that_stripe_forgot_the_key_of_is_looked_up_and_not_made_again(
    stripe: FakeStripe, alice: UUID
) -> None:
    scenes.save_card(stripe, alice)
    top_up = scenes.ask(alice, method="saved_card")
    stripe.script(Fault.RESET_AFTER, "/v1/payment_intents")
    scenes.call_due()
    stripe.clock.advance(25 * 3600)  # at Stripe a day has passed, here its second attempt is due
    scenes.call_until_done()
    top_up.refresh_from_db()
    assert top_up.state == "succeeded"
    assert len(stripe.store.all("payment_intent")) == 1


def test_nobody_is_charged_for_a_request_of_yesterday(stripe: FakeStripe, alice: UUID) -> None:
    scenes.save_card(stripe, alice)
    top_up = scenes.ask(alice, method="saved_card")
    OutboxMessage.objects.update(created_at=clock.now() - timedelta(hours=25))
    scenes.call_until_done()
    top_up.refresh_from_db()
    assert (top_up.state, top_up.reason) == ("expired", "too_late")
    assert stripe.store.all("payment_intent") == []


@pytest.mark.parametrize(
    "amount",
    [0, -1, -50 * DOLLAR, 4_999_999, 5 * DOLLAR - 10_000, 5_000_001, 5_005_000, 5_000 * DOLLAR + 10_000, 10**80],
)
def test_an_amount_outside_of_the_limits_or_finer_than_a_cent_is_refused(
    stripe: FakeStripe, alice: UUID, amount: int
) -> None:
    with pytest.raises(TopUpRefused, match=r"from \$5\.00 to \$5000\.00"):
        scenes.ask(alice, amount)
    assert not TopUp.objects.exists() and not OutboxMessage.objects.exists()


def test_the_top_ups_of_a_day_have_a_maximum_and_a_lower_one_at_first(stripe: FakeStripe, alice: UUID) -> None:
    scenes.ask(alice, 600 * DOLLAR)
    with pytest.raises(TopUpLimitReached, match=r"\$1000\.00; \$600\.00"):
        scenes.ask(alice, 401 * DOLLAR)
    scenes.ask(alice, 400 * DOLLAR)
    bob = uuid4()
    scenes.pay_in(stripe, bob, 10 * DOLLAR)
    scenes.grow_old(bob)
    scenes.ask(bob, 5000 * DOLLAR)
    scenes.ask(bob, 5000 * DOLLAR)
    with pytest.raises(TopUpLimitReached, match=r"\$10000\.00"):
        scenes.ask(bob, 5 * DOLLAR)


@pytest.mark.django_db(transaction=True)
def test_of_many_who_ask_at_once_no_more_is_let_in_than_a_day_may_have(stripe: FakeStripe, alice: UUID) -> None:
    results = race([lambda: scenes.ask(alice, 400 * DOLLAR)] * 8)
    assert sum(isinstance(one, TopUp) for one in results) == 2
    assert sum(isinstance(one, TopUpLimitReached) for one in results) == 6


def test_what_failed_does_not_count_for_the_day(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.ask(alice, 900 * DOLLAR)
    topups.end_top_up(top_up, TopUpState.FAILED, reason="x", message="")
    scenes.ask(alice, 900 * DOLLAR)


def test_a_large_top_up_of_a_new_payer_waits_before_it_can_be_spent(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 500 * DOLLAR)
    assert top_up.state == "succeeded" and top_up.spendable_at > clock.now()
    assert available(alice) == 0 and ledger.balance(alice, AccountKind.JOB_HOLD) == 500 * DOLLAR
    assert topups.release_waiting() == 0
    assert topups.release_waiting(top_up.spendable_at) == 1
    assert topups.release_waiting(top_up.spendable_at) == 0
    assert available(alice) == 500 * DOLLAR
    scenes.assert_same_books(stripe)


def test_a_known_payer_does_not_wait(stripe: FakeStripe, alice: UUID) -> None:
    scenes.pay_in(stripe, alice, 10 * DOLLAR)
    scenes.grow_old(alice)
    scenes.pay_in(stripe, alice, 500 * DOLLAR)
    assert available(alice) == 510 * DOLLAR


def test_tax_is_collected_on_top_and_is_nobodys_balance(stripe: FakeStripe, alice: UUID, settings: Settings) -> None:
    settings.SOUK_STRIPE_TAX = True
    stripe.tax_basis_points = 2000
    top_up = scenes.pay_in(stripe, alice)
    assert available(alice) == 50 * DOLLAR
    assert top_up.tax == 10 * DOLLAR == ledger.balance(None, AccountKind.OPERATOR_CASH)
    scenes.assert_same_books(stripe)
    with pytest.raises(CardsUnavailable, match="payment page"):
        scenes.ask(alice, method="saved_card")


def test_somebody_elses_card_cannot_be_used(stripe: FakeStripe, alice: UUID) -> None:
    card = scenes.save_card(stripe, uuid4())
    with pytest.raises(CardNotFound):
        scenes.ask(alice, method="saved_card", card_id=card.pk)


def test_without_a_key_there_are_no_cards(alice: UUID) -> None:
    with pytest.raises(CardsUnavailable, match="operator credits balances"):
        scenes.ask(alice)


def test_the_sweep_finds_what_no_event_reported(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.ask(alice)
    scenes.call_due()
    top_up.refresh_from_db()
    stripe.pay_session(top_up.session_id)
    assert sweeping.sweep() == 0  # too young to worry about
    TopUp.objects.update(created_at=clock.now() - timedelta(hours=1))
    assert sweeping.sweep() == 1
    assert available(alice) == 50 * DOLLAR


def test_the_poller_fills_the_holes_of_the_webhook(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.ask(alice)
    scenes.call_due()
    top_up.refresh_from_db()
    stripe.pay_session(top_up.session_id)
    assert events.poll() == len(stripe.events)
    scenes.work_off()
    assert available(alice) == 50 * DOLLAR
    events.poll()
    scenes.work_off()
    assert Deposit.objects.count() == 1


def test_a_balance_that_is_not_there_yet_cannot_be_spent(stripe: FakeStripe, alice: UUID) -> None:
    from billing.charging import holds

    scenes.pay_in(stripe, alice, 500 * DOLLAR)
    with pytest.raises(InsufficientFunds):
        holds.place_hold(owner_id=alice, job_id=uuid4(), amount=DOLLAR)


def test_a_process_of_the_version_before_names_no_rail(db: None) -> None:
    """It writes the columns that it knows, while the database has one more already."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_default FROM information_schema.columns"
            " WHERE table_name = 'billing_topup' AND column_name = 'rail'"
        )
        [default] = cursor.fetchone()
    assert default == "'stripe'::character varying"
