"""The card's bank warns of fraud: what is unspent waits for its card, and an operator hears of it."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books.chart_of_accounts import open_account
from billing.charging import holds
from billing.errors import AccountFrozen
from billing.fiat import refunds
from billing.models import Account, Alert, FraudWarning
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.dashboard import refund_in_dashboard
from tests.integration.billing.fiat.losing import loss, run_job
from tests.integration.billing.fiat.scenes import DOLLAR, available

pytestmark = pytest.mark.django_db


def is_frozen(owner_id: UUID) -> bool:
    return bool(open_account(AccountKind.CUSTOMER_AVAILABLE, owner_id).is_frozen)


def test_what_is_unspent_leaves_by_its_card_only(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 50 * DOLLAR)
    scenes.grow_old(alice)
    run_job(alice, uuid4(), 20 * DOLLAR)
    made = stripe.warn_of_fraud(top_up.charge_id)
    scenes.receive_events(stripe)
    warning = FraudWarning.objects.get()
    assert (warning.top_up_id, warning.fraud_type) == (top_up.pk, "unauthorized_use_of_card")
    alert = Alert.objects.open().get(kind="fraud_warning")
    assert "$50.00" in alert.message and top_up.charge_id in alert.message and alert.subject == str(top_up.pk)
    with pytest.raises(AccountFrozen):
        holds.place_hold(owner_id=alice, job_id=uuid4(), amount=DOLLAR)
    with pytest.raises(AccountFrozen):
        refunds.request_refund(top_up.pk, owner_id=alice, actor="alice", amount=DOLLAR)
    assert (available(alice), loss()) == (30 * DOLLAR, 0)

    scenes.fund_platform(stripe)
    refund_in_dashboard(stripe, top_up.charge_id, 5000)
    stripe.refresh_warning(made["id"])
    scenes.receive_events(stripe)
    assert (available(alice), loss()) == (0, 20 * DOLLAR), "the unspent part pays; the rest is the platform's for now"
    assert not Alert.objects.open().filter(kind="fraud_warning").exists()
    scenes.assert_same_books(stripe)


def test_what_an_operator_let_go_stays_so_and_a_dispute_still_comes(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.pay_in(stripe, alice, 50 * DOLLAR)
    made = stripe.warn_of_fraud(top_up.charge_id)
    scenes.receive_events(stripe)
    assert is_frozen(alice)
    Account.objects.filter(owner_id=alice).update(is_frozen=False)
    stripe.refresh_warning(made["id"])
    scenes.receive_events(stripe)
    assert not is_frozen(alice) and Alert.objects.open().filter(kind="fraud_warning").count() == 1
    stripe.open_dispute(top_up.charge_id)
    stripe.refresh_warning(made["id"])
    scenes.receive_events(stripe)
    assert is_frozen(alice) and available(alice) == 0
    assert set(Alert.objects.open().values_list("kind", flat=True)) == {"card_dispute"}
    scenes.assert_same_books(stripe)


def test_a_warning_that_arrives_before_its_payment_freezes_what_then_comes(stripe: FakeStripe, alice: UUID) -> None:
    from billing.fiat import events
    from billing.rails.stripe.records import EventRecord

    top_up = scenes.ask(alice)
    scenes.call_until_done()
    top_up.refresh_from_db()
    stripe.pay_session(top_up.session_id)
    [charge] = stripe.store.all("charge")
    stripe.warn_of_fraud(charge["id"])
    events.store([EventRecord.read(stripe.events[-1])])
    scenes.work_off()
    assert is_frozen(alice) and FraudWarning.objects.count() == 1
    scenes.receive_events(stripe)
    assert is_frozen(alice)


def test_a_warning_about_somebody_elses_payment_is_none_of_ours(stripe: FakeStripe, alice: UUID) -> None:
    scenes.pay_in(stripe, alice)
    answer = stripe.handle(
        "POST",
        "/v1/payment_intents",
        "amount=900&currency=usd&confirm=true&payment_method=pm_card_visa"
        "&automatic_payment_methods[enabled]=true&automatic_payment_methods[allow_redirects]=never",
        key=stripe.secret_key,
    )
    assert answer.status == 200, answer.body
    other = stripe.store.all("charge")[-1]
    stripe.warn_of_fraud(other["id"])
    scenes.receive_events(stripe)
    assert not is_frozen(alice) and not FraudWarning.objects.exists()
