"""What happens between a customer, Stripe and us, in one line each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import F

from billing import tasks
from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.fiat import customers, events, sweeping, topups
from billing.models import SavedCard, StripeEvent, TopUp
from billing.money import MICROS_PER_CENT
from billing.rails.stripe.records import EventRecord
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.scenes import DOLLAR, available

__all__ = ["DOLLAR", "available"]


def call_due() -> None:
    """Make every call that waits, those that were put off after a failure too."""
    OutboxMessage.objects.filter(state=OutboxMessage.State.WAITING).update(next_at=clock.now())
    tasks.dispatch_due()


def call_until_done(rounds: int = 12) -> None:
    """As the outbox does in the course of an hour."""
    for _ in range(rounds):
        call_due()
        if not OutboxMessage.objects.filter(state=OutboxMessage.State.WAITING).exists():
            return


def receive_events(stripe: FakeStripe) -> None:
    """Every event that Stripe has, as its list gives them, handled."""
    events.store(EventRecord.read(one) for one in stripe.events)
    work_off()


def work_off(rounds: int = 3) -> None:
    for _ in range(rounds):
        StripeEvent.objects.filter(processed_at=None).update(next_at=clock.now())
        events.process_due()


def save_card(stripe: FakeStripe, owner_id: UUID, payment_method: str = "pm_card_visa") -> SavedCard:
    """The owner saves a card on Stripe's page."""
    customers.open_setup_page(owner_id)
    pages = [one for one in stripe.store.all("checkout.session") if (one["mode"], one["status"]) == ("setup", "open")]
    stripe.pay_session(pages[0]["id"], payment_method)
    receive_events(stripe)
    return customers.find_card(owner_id)


def pay_in(stripe: FakeStripe, owner_id: UUID, usd_micros: int = 50 * DOLLAR, **fields: Any) -> TopUp:
    """The owner pays on Stripe's page; credited when this returns."""
    top_up = ask(owner_id, usd_micros, **fields)
    call_until_done()
    top_up.refresh_from_db()
    stripe.pay_session(top_up.session_id)
    receive_events(stripe)
    top_up.refresh_from_db()
    return top_up


def ask(owner_id: UUID, usd_micros: int = 50 * DOLLAR, *, method: str = "checkout", **fields: Any) -> TopUp:
    return topups.request_top_up(owner_id, usd_micros, method=method, actor="alice", **fields)


def fund_platform(stripe: FakeStripe, cents: int = 100_000) -> None:
    """The operator puts money of its own into Stripe's balance, as for fees that refunds do not give back."""
    stripe.fund(cents)
    sweeping.book_own_moves()


def grow_old(owner_id: UUID) -> None:
    """Whatever this owner has paid in was paid in a year ago."""
    year = timedelta(days=365)
    mine = TopUp.objects.filter(owner_id=owner_id, credited_at__isnull=False)
    mine.update(created_at=F("created_at") - year, credited_at=F("credited_at") - year)


def stripe_has(stripe: FakeStripe) -> int:
    """Its books of our account, in micro-USD."""
    return sum(stripe.balance.get("usd", (0, 0))) * MICROS_PER_CENT


def ledger_says() -> int:
    return -ledger.balance(None, AccountKind.STRIPE_BALANCE)


def assert_same_books(stripe: FakeStripe) -> None:
    assert ledger_says() == stripe_has(stripe)
    report = ledger.verify()
    assert report.problems == []
    assert set(ledger.trial_balance().values()) <= {0}
