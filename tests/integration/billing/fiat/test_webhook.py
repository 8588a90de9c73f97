"""The webhook takes what Stripe signed, once; whatever else comes changes nothing."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID

import pytest
from pytest_django import Settings

from billing.fiat import events, intents
from billing.models import StripeEvent, Transfer
from marketplace.foundation import clock
from tests.fakes.stripe import FakeStripe, Fault, WebhookFaults
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.receiving import receive
from tests.integration.billing.fiat.scenes import DOLLAR, available
from tests.integration.billing.scenes import race

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.integration.billing.urls")]


def paid_page(stripe: FakeStripe, alice: UUID) -> None:
    top_up = scenes.ask(alice)
    scenes.call_due()
    top_up.refresh_from_db()
    stripe.pay_session(top_up.session_id)


def test_what_stripe_signed_is_stored_once_and_credited_once(stripe: FakeStripe, alice: UUID) -> None:
    paid_page(stripe, alice)
    faults = WebhookFaults(seed=3, duplicate=0.8, reorder=True)
    deliveries = stripe.deliver(receive, faults=faults)
    assert len(deliveries) > len(stripe.events) == StripeEvent.objects.count()
    scenes.work_off()
    assert available(alice) == 50 * DOLLAR
    assert not StripeEvent.objects.filter(processed_at=None).exists()
    scenes.assert_same_books(stripe)


def test_what_somebody_else_signed_is_refused_and_not_stored(stripe: FakeStripe, alice: UUID) -> None:
    paid_page(stripe, alice)
    deliveries = stripe.deliver(receive, faults=WebhookFaults(seed=1, missign=1.0, stale=1.0, drop=0.0))
    assert {one.status for one in deliveries if one.fault in {"missign", "stale"}} == {400}
    body, signature = stripe.signed(stripe.events[0] | {"id": "evt_forged"}, secret="whsec_mallorys")
    assert receive(body, signature) == 400
    assert not StripeEvent.objects.filter(pk="evt_forged").exists()


@pytest.mark.parametrize(
    "header", ["", "t=1", "v1=abc", "t=x,v1=y", "t=9999999999,v1=", "\x00", "t=1,v1=" + "a" * 9000]
)
def test_nonsense_in_place_of_a_signature_is_refused(stripe: FakeStripe, header: str) -> None:
    assert receive(b"{}", header) == 400


def test_a_signature_holds_for_the_very_bytes_only(stripe: FakeStripe, alice: UUID) -> None:
    paid_page(stripe, alice)
    body, signature = stripe.signed(stripe.events[0])
    respaced = json.dumps(json.loads(body), indent=1).encode()
    assert respaced != body
    assert receive(respaced, signature) == 400
    assert receive(body, signature) == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"id": 1}',
        b'{"id": "evt_1", "type": "x", "created": "soon"}',
        b"\xff\xfe",
        b"[" * 9000,
    ],
)
def test_signed_nonsense_is_refused(stripe: FakeStripe, body: bytes) -> None:
    try:
        _, signature = stripe.signed(body)
    except UnicodeDecodeError:
        signature = "t=1,v1=0"
    assert receive(body, signature) == 400
    assert not StripeEvent.objects.exists()


def test_a_body_that_is_too_large_is_refused(stripe: FakeStripe) -> None:
    body, signature = stripe.signed(b'{"id": "' + b"x" * 600_000 + b'"}')
    assert receive(body, signature) == 400


def test_while_a_secret_changes_both_are_good(stripe: FakeStripe, alice: UUID, settings: Settings) -> None:
    paid_page(stripe, alice)
    settings.SOUK_STRIPE_WEBHOOK_SECRETS = ["whsec_new", stripe.webhook_secret]
    assert receive(*stripe.signed(stripe.events[0])) == 200
    assert receive(*stripe.signed(stripe.events[1], secret="whsec_new")) == 200
    settings.SOUK_STRIPE_WEBHOOK_SECRETS = ["whsec_new"]
    assert receive(*stripe.signed(stripe.events[2])) == 400
    settings.SOUK_STRIPE_WEBHOOK_SECRETS = []
    assert receive(*stripe.signed(stripe.events[2], secret="")) == 400


def test_what_an_event_claims_is_not_believed(stripe: FakeStripe, alice: UUID) -> None:
    """Its signature is good and its content old or wrong: the state now is read from Stripe."""
    top_up = scenes.ask(alice)
    scenes.call_due()
    top_up.refresh_from_db()
    made_up = {
        "id": "evt_early",
        "object": "event",
        "type": "checkout.session.completed",
        "created": stripe.clock.now(),
        "data": {"object": {"id": top_up.session_id, "payment_status": "paid", "amount_total": 99_999_999}},
    }
    assert receive(*stripe.signed(made_up)) == 200
    scenes.work_off()
    assert available(alice) == 0 and not Transfer.objects.exists()


@pytest.mark.parametrize("kind", ["invoice.paid", "payment_intent.succeeded", "charge.dispute.created"])
def test_what_is_none_of_ours_is_stored_and_ignored(stripe: FakeStripe, kind: str, db: None) -> None:
    body = {
        "id": "evt_1",
        "object": "event",
        "type": kind,
        "created": stripe.clock.now(),
        "data": {"object": {"id": "pi_of_somebody_else"}},
    }
    assert receive(*stripe.signed(body)) == 200
    scenes.work_off()
    event = StripeEvent.objects.get()
    assert (event.outcome, event.error) == ("ignored", "") and event.processed_at


def test_what_went_wrong_is_kept_and_tried_again_later(stripe: FakeStripe, alice: UUID) -> None:
    paid_page(stripe, alice)
    stripe.deliver(receive, types=["payment_intent.succeeded"])
    stripe.script(Fault.UNAVAILABLE, "/v1/payment_intents/*", method="GET")
    events.process_due()
    event = StripeEvent.objects.get()
    assert (event.outcome, event.attempts) == ("waiting", 1) and "503" in event.error
    assert event.next_at > clock.now()
    assert events.process_due() == 0  # not before its time
    scenes.work_off()
    event.refresh_from_db()
    assert (event.outcome, event.error) == ("handled", "")
    assert available(alice) == 50 * DOLLAR


def test_what_never_works_is_given_up_until_the_operator_says_so(
    stripe: FakeStripe, alice: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "ATTEMPTS_MAX", 2)
    paid_page(stripe, alice)
    stripe.deliver(receive, types=["payment_intent.succeeded"])
    stripe.script(Fault.UNAVAILABLE, "/v1/payment_intents/*", method="GET", times=2)
    scenes.work_off()
    assert StripeEvent.objects.get().outcome == "given_up"
    assert events.try_again([StripeEvent.objects.get().pk]) == 1
    scenes.work_off()
    assert available(alice) == 50 * DOLLAR


def test_the_poller_brings_what_was_dropped(stripe: FakeStripe, alice: UUID) -> None:
    paid_page(stripe, alice)
    stripe.deliver(receive, faults=WebhookFaults(seed=1, drop=1.0))
    assert not StripeEvent.objects.exists()
    events.poll()
    scenes.work_off()
    assert available(alice) == 50 * DOLLAR
    stripe.clock.advance(86400)
    paid_page(stripe, alice)
    events.poll()
    scenes.work_off()
    assert available(alice) == 100 * DOLLAR


@pytest.mark.django_db(transaction=True)
def test_two_workers_who_handle_the_same_events_credit_once(stripe: FakeStripe, alice: UUID) -> None:
    paid_page(stripe, alice)
    stripe.deliver(receive)
    StripeEvent.objects.update(next_at=clock.now() - timedelta(minutes=1))
    ids = [event["data"]["object"]["id"] for event in stripe.events if event["type"] == "payment_intent.succeeded"]
    results = race([lambda: intents.refresh_intent(ids[0])] * 4 + [events.process_due] * 4)
    assert [one for one in results if isinstance(one, Exception)] == []
    assert available(alice) == 50 * DOLLAR
    scenes.assert_same_books(stripe)
