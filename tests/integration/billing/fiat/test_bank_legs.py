"""From the provider's account at Stripe to its bank: kept, shown, reported, tried again, and never paid twice."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from django.core import mail
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from billing.books import ledger
from billing.models import Alert, BankLeg, StripeEvent
from billing.payouts import submission
from billing.payouts.bank_legs import TRIES_MAX
from billing.rails.stripe.client import Key, StripeClient, connect
from billing.rails.stripe.records import StripeRefused
from billing.states import BANK_MACHINE, BankState, PayoutState
from marketplace.accounts import organisations
from marketplace.accounts.models import User
from marketplace.foundation import clock
from marketplace.foundation.state_triggers import edges_in_database, edges_of
from tests.fakes.stripe import FakeStripe, Fault
from tests.integration.billing.fiat import banking, scenes
from tests.people import sign

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.integration.billing.urls")]


@pytest.fixture
def bob(stripe: FakeStripe, settings: Settings, db: None) -> UUID:
    banking.turn_on(stripe, settings)
    return banking.join(stripe)


def refuse_banks(stripe: FakeStripe, provider: UUID) -> None:
    """Stripe takes transfers to this account, and sends nothing on to its bank."""
    stripe.stop_payouts(banking.account_of(provider))


def accept_banks(stripe: FakeStripe, provider: UUID) -> None:
    stripe.onboard(banking.account_of(provider))


def test_the_way_to_the_bank_is_followed_from_event_to_event(stripe: FakeStripe, bob: UUID) -> None:
    payout = banking.pay(bob)
    [bank] = banking.bank_payouts(stripe, payout)
    leg = BankLeg.objects.get(payout=payout)
    assert (payout.state, leg.state, leg.bank_payout_id) == (PayoutState.CONFIRMED, BankState.SENT, bank)
    stripe.pay_payout(bank)
    scenes.receive_events(stripe)
    leg.refresh_from_db()
    assert leg.state == BankState.PAID
    assert banking.alert_kinds() == set()


@pytest.mark.parametrize("is_paid_first", [False, True])
def test_the_event_that_the_bank_refused_it_returns_the_payout_at_once(
    stripe: FakeStripe, bob: UUID, is_paid_first: bool
) -> None:
    payout = banking.pay(bob)
    [bank] = banking.bank_payouts(stripe, payout)
    if is_paid_first:
        stripe.pay_payout(bank)
        scenes.receive_events(stripe)
    stripe.fail_payout(bank, "account_closed")
    scenes.receive_events(stripe)
    payout.refresh_from_db()
    assert payout.state == PayoutState.RETURNED and "closed" in payout.last_error
    assert banking.spendable(bob) == banking.EARNED
    assert BankLeg.objects.get(payout=payout).state == BankState.RETURNED
    assert StripeEvent.objects.get(type="payout.failed").outcome == "handled"
    assert "transfer_reversed" not in banking.alert_kinds(), "our own reversal is no news"
    scenes.assert_same_books(stripe)


def test_a_payout_that_was_cancelled_at_stripe_is_returned(stripe: FakeStripe, bob: UUID) -> None:
    payout = banking.pay(bob)
    [bank] = banking.bank_payouts(stripe, payout)
    answer = stripe.handle("POST", f"/v1/payouts/{bank}/cancel", "", key=stripe.secret_key, account=payout.destination)
    assert answer.status == 200, answer.body
    scenes.receive_events(stripe)
    payout.refresh_from_db()
    assert payout.state == PayoutState.RETURNED
    assert banking.spendable(bob) == banking.EARNED
    scenes.assert_same_books(stripe)


def test_a_strangers_account_moves_nobody_elses_payout(stripe: FakeStripe, bob: UUID) -> None:
    """Mallory writes Bob's payout on a payout of her own, which then fails."""
    payout = banking.pay(bob)
    mallory = banking.join(stripe)
    hers = banking.pay(mallory)
    connect().transfer(
        account_id=hers.destination, amount_cents=500, group="more", metadata={"payout_id": "more"}, key=Key("more")
    )
    planted = connect().pay_bank(
        hers.destination, amount_cents=500, metadata={"payout_id": str(payout.pk)}, key=Key("planted")
    )
    stripe.fail_payout(planted.id, "account_closed")
    [bobs] = banking.bank_payouts(stripe, payout)
    StripeEvent.objects.create(
        event_id="evt_forged",
        type="payout.failed",
        account=hers.destination,
        payload={"data": {"object": {"id": bobs}}},
        created=clock.now(),
    )
    scenes.receive_events(stripe)
    for one in (payout, hers):
        one.refresh_from_db()
        assert one.state == PayoutState.CONFIRMED
        assert BankLeg.objects.get(payout=one).state == BankState.SENT
    assert StripeEvent.objects.get(pk="evt_forged").outcome == "ignored"
    assert stripe.store.all("transfer_reversal") == []


def test_a_payout_from_before_bank_legs_were_kept_is_found_by_what_we_wrote(stripe: FakeStripe, bob: UUID) -> None:
    payout = banking.pay(bob)
    BankLeg.objects.all().delete()
    [bank] = banking.bank_payouts(stripe, payout)
    stripe.fail_payout(bank, "no_account")
    scenes.receive_events(stripe)
    payout.refresh_from_db()
    assert payout.state == PayoutState.RETURNED


def test_what_stripe_does_not_send_on_is_alerted_shown_and_tried_again(stripe: FakeStripe, bob: UUID) -> None:
    refuse_banks(stripe, bob)
    payout = banking.pay(bob)
    leg = BankLeg.objects.get(payout=payout)
    assert (payout.state, leg.state, leg.tries) == (PayoutState.CONFIRMED, BankState.REFUSED, 1)
    assert "payouts disabled" in leg.message and leg.next_at is not None
    assert "payouts disabled" in Alert.objects.open().get(kind="payout_bank").message
    banking.wait()
    leg.refresh_from_db()
    assert (leg.state, leg.tries) == (BankState.REFUSED, 2)
    accept_banks(stripe, bob)
    banking.wait()  # within Stripe's memory of the first refusal: the third try has a key of its own
    leg = BankLeg.objects.get(payout=payout)
    assert (leg.state, leg.next_at, leg.message) == (BankState.SENT, None, "")
    [bank] = stripe.store.all("payout", payout.destination)
    assert (bank["amount"], bank["metadata"]["attempt"]) == (2000, "3")
    assert banking.alert_kinds() == set()


def test_an_account_that_stripe_no_longer_shows_keeps_no_transfer_from_the_books(
    stripe: FakeStripe, bob: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*named: object) -> None:
        raise StripeRefused("This account was closed.", code="account_invalid")

    with monkeypatch.context() as patched:
        patched.setattr(StripeClient, "find_bank_payout", refuse)
        payout = banking.pay(bob)
    leg = BankLeg.objects.get(payout=payout)
    assert (payout.state, leg.state, leg.tries) == (PayoutState.CONFIRMED, BankState.REFUSED, 1)
    assert "account was closed" in Alert.objects.open().get(kind="payout_bank").message
    scenes.assert_same_books(stripe)
    banking.wait()
    leg.refresh_from_db()
    assert leg.state == BankState.SENT and len(banking.bank_payouts(stripe, payout)) == 1
    assert banking.alert_kinds() == set()


def test_an_account_that_may_be_paid_again_is_tried_at_once(stripe: FakeStripe, bob: UUID) -> None:
    payout = banking.pay(bob)
    stripe.fail_payout(banking.bank_payouts(stripe, payout)[0])
    scenes.receive_events(stripe)
    refuse_banks(stripe, bob)
    second = banking.pay(bob)
    stripe.restrict(second.destination)
    scenes.receive_events(stripe)
    stripe.onboard(second.destination)
    scenes.receive_events(stripe)
    submission.follow_payouts()
    assert BankLeg.objects.get(payout=second).state == BankState.SENT


def test_tries_come_later_each_time_and_end(stripe: FakeStripe, bob: UUID) -> None:
    refuse_banks(stripe, bob)
    payout = banking.pay(bob)
    pauses = []
    for _ in range(TRIES_MAX + 3):
        leg = BankLeg.objects.get(payout=payout)
        pauses.append(round((leg.next_at - clock.now()).total_seconds() / 3600) if leg.next_at else None)
        banking.wait()
    assert pauses[:7] == [1, 2, 4, 8, 16, 24, 24] and pauses[-4:] == [None] * 4
    leg = BankLeg.objects.get(payout=payout)
    assert (leg.state, leg.tries, leg.next_at) == (BankState.REFUSED, TRIES_MAX, None)
    assert "not tried again by itself" in Alert.objects.open().get(kind="payout_bank").message


def test_an_operator_may_have_it_tried_once_more(stripe: FakeStripe, bob: UUID, client: Client) -> None:
    """Bob gave Stripe another bank account after the last try."""
    refuse_banks(stripe, bob)
    payout = banking.pay(bob)
    leg = BankLeg.objects.get(payout=payout)
    BankLeg.objects.filter(pk=leg.pk).update(next_at=None, tries=TRIES_MAX)
    accept_banks(stripe, bob)
    submission.follow_payouts()
    assert banking.bank_payouts(stripe, payout) == []
    client.force_login(User.objects.create_superuser("operator@example.org"))
    answer = client.post("/admin/billing/bankleg/", {"action": "try_again", "_selected_action": [str(leg.pk)]})
    assert answer.status_code == 302
    submission.follow_payouts()
    leg.refresh_from_db()
    assert (leg.state, len(banking.bank_payouts(stripe, payout))) == (BankState.SENT, 1)


def test_a_look_before_its_time_tries_nothing(stripe: FakeStripe, bob: UUID) -> None:
    refuse_banks(stripe, bob)
    payout = banking.pay(bob)
    accept_banks(stripe, bob)
    submission.follow_payouts()
    scenes.receive_events(stripe)
    assert BankLeg.objects.get(payout=payout).tries == 1


@pytest.mark.parametrize("fault", [Fault.RESET_AFTER, Fault.ERROR_AFTER, Fault.RESET_BEFORE, Fault.UNAVAILABLE])
def test_a_second_try_whose_answer_is_lost_pays_the_bank_once(stripe: FakeStripe, bob: UUID, fault: Fault) -> None:
    refuse_banks(stripe, bob)
    payout = banking.pay(bob)
    accept_banks(stripe, bob)
    stripe.script(fault, "/v1/payouts", times=2)
    for _ in range(4):
        banking.wait()
    assert len(banking.bank_payouts(stripe, payout)) == 1
    assert BankLeg.objects.get(payout=payout).state == BankState.SENT


def test_what_the_bank_sent_back_and_stripe_does_not_reverse_is_alerted_and_tried_again(
    stripe: FakeStripe, bob: UUID
) -> None:
    payout = banking.pay(bob)
    [bank] = banking.bank_payouts(stripe, payout)
    stripe.fail_payout(bank, "account_closed")
    # Bob's account is short: somebody's refund there took a part.
    taken = stripe.books.book(payout.destination, "adjustment", -500, "usd", source="xx_1")
    scenes.receive_events(stripe)
    payout.refresh_from_db()
    leg = BankLeg.objects.get(payout=payout)
    assert (payout.state, leg.state, leg.tries) == (PayoutState.CONFIRMED, BankState.SENT_BACK, 1)
    assert "cannot be reversed" in Alert.objects.open().get(kind="payout_bank").message
    stripe.books.book(payout.destination, "adjustment", -taken["amount"], "usd", source="xx_2")
    banking.wait()
    payout.refresh_from_db()
    assert payout.state == PayoutState.RETURNED
    assert banking.spendable(bob) == banking.EARNED
    assert "payout_bank" not in banking.alert_kinds()
    assert len(stripe.store.all("transfer_reversal")) == 1
    scenes.assert_same_books(stripe)


def test_a_reversal_by_hand_is_alerted_once_and_ours_is_not(stripe: FakeStripe, bob: UUID) -> None:
    payout = banking.pay(bob)
    stripe.fail_payout(banking.bank_payouts(stripe, payout)[0])
    # The bank's refusal was not handled yet: a person was quicker, with a part of it.
    reversal = banking.reverse_by_hand(payout, 700)
    scenes.receive_events(stripe)
    [alert] = Alert.objects.filter(kind="transfer_reversed")
    assert reversal in alert.message and "$7.00" in alert.message and alert.severity == "critical"
    assert alert.subject == str(payout.pk)
    payout.refresh_from_db()
    assert payout.state == PayoutState.CONFIRMED, "nothing is returned twice"
    Alert.objects.filter(pk=alert.pk).update(closed_at=clock.now())
    second = banking.reverse_by_hand(payout, 100)
    scenes.receive_events(stripe)
    assert second in Alert.objects.open().get(kind="transfer_reversed").message
    assert ledger.verify().problems == []


def test_a_transfer_that_is_none_of_ours_and_was_reversed_is_alerted_too(stripe: FakeStripe, bob: UUID) -> None:
    made = connect().transfer(
        account_id=banking.account_of(bob), amount_cents=900, group="hand", metadata={}, key=Key("hand")
    )
    connect().reverse_transfer(made.id, amount_cents=900, metadata={"outbox_id": "x"}, key=Key("hand back"))
    scenes.receive_events(stripe)
    assert "no payout that we know" in Alert.objects.open().get(kind="transfer_reversed").message


def test_what_a_reversal_left_at_stripe_is_alerted_and_not_sent_on(stripe: FakeStripe, bob: UUID) -> None:
    refuse_banks(stripe, bob)
    payout = banking.pay(bob)
    accept_banks(stripe, bob)
    banking.reverse_by_hand(payout, 500)
    banking.wait()
    leg = BankLeg.objects.get(payout=payout)
    assert (leg.state, leg.next_at) == (BankState.LEFT, None)
    assert "15.00 USD of 20.00" in Alert.objects.open().get(kind="payout_bank").message
    assert banking.bank_payouts(stripe, payout) == []


def test_the_provider_sees_where_its_money_is(stripe: FakeStripe, settings: Settings, db: None) -> None:
    banking.turn_on(stripe, settings)
    owner = organisations.create(User.objects.create_user("bob@example.org"), "bob's")
    provider = banking.join(stripe, owner_id=owner.organisation_id)
    client: APIClient = sign(owner)
    client.defaults["SERVER_NAME"] = "localhost"
    refuse_banks(stripe, provider)
    payout = banking.pay(provider)
    [shown] = client.get("/api/v1/payouts").json()["results"]
    assert (shown["state"], shown["bank_state"]) == ("confirmed", "refused")
    assert "payouts disabled" in shown["bank_message"] and shown["bank_next_at"]
    scenes.call_until_done()
    [sent] = [one for one in mail.outbox if "is not at your bank" in one.subject]
    assert sent.to == ["bob@example.org"] and "payouts disabled" in str(sent.body)
    accept_banks(stripe, provider)
    banking.wait()
    [shown] = client.get("/api/v1/payouts").json()["results"]
    assert (shown["id"], shown["bank_state"], shown["bank_message"]) == (str(payout.pk), "sent", "")


def test_the_database_knows_the_edges_of_bank_legs() -> None:
    assert edges_in_database("billing_bankleg", BANK_MACHINE) == edges_of(BANK_MACHINE)


def test_events_of_an_account_that_nobody_was_paid_to_ask_stripe_nothing(stripe: FakeStripe, bob: UUID) -> None:
    StripeEvent.objects.create(
        event_id="evt_stranger",
        type="payout.failed",
        account="acct_stranger0001",
        payload={"data": {"object": {"id": f"po_{uuid4().hex}"}}},
        created=clock.now(),
    )
    stripe.script(Fault.ERROR_BEFORE, "/v1/payouts/*", method="GET")
    scenes.work_off()
    event = StripeEvent.objects.get(pk="evt_stranger")
    assert (event.outcome, event.attempts) == ("ignored", 1)
