"""All that Stripe lists is read, in parts; nothing is left out because a list was too long."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from billing.fiat import events, sweeping
from billing.models import Alert, StripeBooking, StripeCursor, StripeEvent
from billing.rails.stripe import calls
from billing.rails.stripe import client as stripe_client
from billing.rails.stripe.records import StripeTooLong
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.fiat import scenes

pytestmark = pytest.mark.django_db

ROWS = 61


@pytest.fixture(autouse=True)
def short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages of three rows."""
    monkeypatch.setattr(calls, "PAGE_SIZE", 3)
    monkeypatch.setattr(calls, "PAGES_MAX", 2)


def move_much(stripe: FakeStripe) -> datetime:
    """Rows that lie close together, then far apart, then close; when the first was."""
    stripe.handle("POST", "/v1/customers", "name=Alice", key=stripe.secret_key)
    stripe.clock.advance(3_600)
    since = datetime.fromtimestamp(stripe.clock.now(), UTC)
    StripeCursor.objects.create(name=events.CURSOR, seen_until=since + events.POLL_OVERLAP)
    for number in range(ROWS):
        stripe.fund(100 + number)
        stripe.emit("customer.updated", stripe.store.all("customer")[0])
        stripe.clock.advance(1 if number % 20 else 5_000)
    return since


def test_a_list_is_read_whole_in_its_order_however_long(stripe: FakeStripe) -> None:
    since = move_much(stripe)
    bookings = list(stripe_client.connect().list_bookings(since))
    assert [one.amount_cents for one in bookings] == [100 + number for number in range(ROWS)]
    parts = list(stripe_client.connect().list_events(since))
    assert len(parts) > ROWS // 6 and max(map(len, parts)) <= 6
    assert len({one.id for part in parts for one in part}) == sum(map(len, parts)) == ROWS


def test_the_poller_and_the_sweep_read_all_of_a_long_list(stripe: FakeStripe) -> None:
    move_much(stripe)
    assert events.poll() == ROWS
    assert StripeEvent.objects.count() == ROWS
    assert sweeping.book_own_moves() == ROWS == StripeBooking.objects.count()
    scenes.assert_same_books(stripe)
    assert not Alert.objects.exists()


def test_what_one_poll_does_not_reach_the_next_ones_do(stripe: FakeStripe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "POLL_OVERLAP", events.POLL_OVERLAP / 900)
    monkeypatch.setattr(sweeping, "OVERLAP", events.POLL_OVERLAP)
    monkeypatch.setattr(calls, "LISTS_MAX", 24)
    move_much(stripe)
    received = 0
    for _ in range(10):
        events.poll()
        received, before = StripeEvent.objects.count(), received
        if received == ROWS:
            break
        assert received > before and Alert.objects.open().get().kind == "stripe_backlog"
    assert before and received == ROWS  # not at once
    events.poll()
    assert not Alert.objects.open().exists()
    for _ in range(10):
        try:
            sweeping.book_own_moves()
            break
        except StripeTooLong:
            continue
    assert StripeBooking.objects.count() == ROWS
    scenes.assert_same_books(stripe)


def test_more_in_one_second_than_a_list_holds_is_reported_and_skips_nothing(stripe: FakeStripe) -> None:
    for number in range(10):
        stripe.fund(100 + number)
    before = StripeCursor.objects.filter(name=sweeping.CURSOR).values_list("seen_until", flat=True).first()
    with pytest.raises(StripeTooLong):
        sweeping.book_own_moves()
    assert StripeBooking.objects.count() == 0
    after = StripeCursor.objects.get(name=sweeping.CURSOR).seen_until
    assert after < datetime.fromtimestamp(stripe.clock.now(), UTC) and (before is None or before == after)
