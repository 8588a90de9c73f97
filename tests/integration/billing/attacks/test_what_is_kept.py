"""Of an event, an id; of a person, an id: nothing that erasing somebody would have to find."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from rest_framework.test import APIClient

from billing.fiat import events
from billing.models import StripeEvent, TopUp
from marketplace.accounts import erasure
from marketplace.accounts.models import Membership, Organisation, Role, User
from marketplace.foundation import clock
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.posting import post
from tests.integration.billing.fiat.receiving import receive
from tests.people import sign

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.integration.billing.urls")]

EMAIL = "alice.liddell@example.org"


@pytest.fixture
def owner(db: None) -> Membership:
    user = User.objects.create_user(EMAIL)
    return Membership.objects.create(user=user, organisation=Organisation.objects.create(name="A"), role=Role.OWNER)


def everything_that_is_kept() -> str:
    """Every row of every table, as text."""
    texts = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT coalesce(string_agg(t::text, chr(10)), '') FROM \"{table}\" t")
            texts.append(cursor.fetchone()[0])
    return "\n".join(texts)


def test_nobody_finds_an_erased_person_in_the_rows_of_money(stripe: FakeStripe, owner: Membership) -> None:
    client: APIClient = sign(owner)
    scenes.save_card(stripe, owner.organisation_id)
    rule = {"threshold_usd_micros": "1", "amount_usd_micros": "50000000", "monthly_max_usd_micros": "50000000"}
    assert post(client, "auto-top-up", rule, method="put").status_code == 200
    assert post(client, "payout-account", {"country": "US"}).status_code == 202
    from billing.fiat import automatic

    automatic.run_rules()
    scenes.call_until_done()
    scenes.receive_events(stripe)
    top_up = TopUp.objects.get()
    assert top_up.state == "succeeded"
    assert post(client, f"top-ups/{top_up.pk}/refunds", {"amount_usd_micros": "10000"}).status_code == 202
    scenes.call_until_done()
    stripe.open_dispute(top_up.charge_id)
    scenes.receive_events(stripe)
    assert stripe.store.all("account")[0]["email"] == EMAIL  # Stripe has it
    Membership.objects.create(
        user=User.objects.create_user("b@example.org"), organisation=owner.organisation, role=Role.OWNER
    )
    erasure.erase(owner.user_id)
    assert EMAIL not in everything_that_is_kept()


def test_of_a_payment_no_name_address_or_card_is_kept(stripe: FakeStripe, owner: Membership) -> None:
    body = {
        "id": "evt_1",
        "type": "charge.succeeded",
        "created": stripe.clock.now(),
        "data": {
            "object": {
                "id": "ch_1",
                "payment_intent": {"id": "pi_1", "receipt_email": EMAIL},
                "billing_details": {"name": "Alice Liddell", "email": EMAIL},
                "payment_method_details": {"card": {"last4": "4242"}},
            }
        },
    }
    assert receive(*stripe.signed(body)) == 200
    assert StripeEvent.objects.get().payload == {"data": {"object": {"id": "ch_1", "payment_intent": "pi_1"}}}


def test_an_event_about_a_thing_without_an_id_is_taken_and_ignored(stripe: FakeStripe, db: None) -> None:
    """Refused, Stripe would send it for three days, and then switch the endpoint off."""
    body = {"id": "evt_1", "type": "balance.available", "created": 1, "data": {"object": {"object": "balance"}}}
    assert receive(*stripe.signed(body)) == 200
    scenes.work_off()
    assert StripeEvent.objects.get().outcome == "ignored"


@pytest.mark.parametrize(
    "change",
    [
        {"id": "evt_\x00"},
        {"id": "evt_" + "x" * 300},
        {"id": 7},
        {"id": None},
        {"type": "x" * 300},
        {"type": "payment_intent.succeeded"},
        {"account": {"id": "acct_1"}},
        {"account": "\ud800"},
        {"created": 10**30},
        {"created": -(10**18)},
        {"created": "1e3"},
        {"created": float("1e300")},
        {"data": {"object": "pi_1"}},
        {"data": []},
        {"data": {"object": {"id": "a\x00b"}}},
    ],
)
def test_signed_nonsense_of_every_kind_has_an_answer(stripe: FakeStripe, change: dict[str, object]) -> None:
    body = {"id": "evt_1", "type": "x", "created": 1, "data": {"object": {"name": "x"}}} | change
    assert receive(*stripe.signed(json.dumps(body).encode())) == 400
    assert not StripeEvent.objects.exists()


def test_an_event_that_nobody_can_read_does_not_hide_the_others_from_the_poller(
    stripe: FakeStripe, owner: Membership
) -> None:
    top_up = scenes.ask(owner.organisation_id)
    scenes.call_due()
    top_up.refresh_from_db()
    stripe.pay_session(top_up.session_id)
    stripe.events.insert(1, {**stripe.events[0], "id": "evt_odd", "data": {"object": None}})
    events.poll()
    scenes.work_off()
    top_up.refresh_from_db()
    assert top_up.state == "succeeded"


@pytest.mark.parametrize("length", ["²", "9" * 5000, "-1", "1e3", "0x10", " 5 5"])
def test_a_length_that_is_none_is_refused(stripe: FakeStripe, length: str, db: None) -> None:
    answer = APIClient().post("/api/v1/stripe/webhook", data=b"{}", content_type="text/plain", CONTENT_LENGTH=length)
    assert answer.status_code == 400


def test_old_events_are_forgotten_but_those_that_wait_or_were_given_up(stripe: FakeStripe, db: None) -> None:
    old = clock.now() - timedelta(days=91)
    for outcome in StripeEvent.Outcome:
        is_done = outcome != StripeEvent.Outcome.WAITING
        for when in (old, clock.now()):
            fields = {
                "outcome": outcome,
                "created": when,
                "received_at": when,
                "processed_at": when if is_done else None,
            }
            StripeEvent.objects.create(event_id=str(uuid4()), type="x", payload={}, **fields)
    assert events.forget_old() == 2
    assert StripeEvent.objects.filter(outcome__in=["handled", "ignored"]).count() == 2
