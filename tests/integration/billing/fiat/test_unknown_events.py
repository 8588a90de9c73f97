"""Event types that nothing handles: those that concern money are alerted once a type, the rest is ignored."""

from __future__ import annotations

import pytest

from billing.fiat import events
from billing.models import Alert, StripeEvent
from marketplace.foundation import clock
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.fiat import scenes

pytestmark = pytest.mark.django_db


def receive(type_: str, number: int = 1, *, account: str = "") -> StripeEvent:
    event = StripeEvent.objects.create(
        event_id=f"evt_{type_}_{number}",
        type=type_,
        account=account,
        payload={"data": {"object": {"id": "xx_1"}}},
        created=clock.now(),
    )
    scenes.work_off(1)
    event.refresh_from_db()
    return event


@pytest.mark.parametrize(
    "type_", ["charge.expired", "payout.failed", "transfer.failed", "refund.lost", "balance.new", "topup.reversed"]
)
def test_an_unknown_type_that_concerns_money_is_alerted_once(stripe: FakeStripe, db: None, type_: str) -> None:
    for number in range(3):
        assert receive(type_, number).outcome == StripeEvent.Outcome.IGNORED
    [alert] = Alert.objects.open()
    assert (alert.kind, alert.noticed) == ("stripe_event_type", 3)
    assert type_ in alert.message and f"evt_{type_}_2" in alert.message


@pytest.mark.parametrize("type_", ["customer.updated", "product.created", "balance_settings.updated", "chargeable.x"])
def test_an_unknown_type_of_anything_else_is_ignored(stripe: FakeStripe, db: None, type_: str) -> None:
    assert receive(type_).outcome == StripeEvent.Outcome.IGNORED
    assert not Alert.objects.exists()


def test_nobody_raises_alerts_from_an_account_of_their_own(stripe: FakeStripe, db: None) -> None:
    for type_ in ("charge.expired", "transfer.failed", "balance.new", "payout.created"):
        assert receive(type_, account="acct_mallory0001").outcome == StripeEvent.Outcome.IGNORED
    assert not Alert.objects.exists()


def test_what_no_news_names_is_handled_by_nobody() -> None:
    assert not events.NO_NEWS & set(events.HANDLERS)
    assert {one.partition(".")[0] for one in events.NO_NEWS} <= events.MONEY
