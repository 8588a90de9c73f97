"""Whatever Stripe moves of our balance is booked, or a person can book it; nothing stops payouts for good."""

from __future__ import annotations

from typing import get_args

import pytest
import stripe as stripe_library

from billing import breaker
from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.fiat import sweeping
from billing.models import Alert
from billing.money import MICROS_PER_CENT
from billing.notices import alerts
from billing.rails.stripe.booking_types import BOOKERS, Booker, booker_of
from billing.reconciliation.reconciling import reconcile
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.fiat import scenes

pytestmark = pytest.mark.django_db
KINDS_OF_BOOKERS = {
    Booker.OPERATOR: AccountKind.OPERATOR_CASH,
    Booker.COST: AccountKind.STRIPE_FEE_EXPENSE,
    Booker.KEPT: AccountKind.STRIPE_IN_TRANSIT,
    Booker.LOSS: AccountKind.CHARGEBACK_LOSS,
}
BOOKED_BY_US = sorted(kind for kind, booker in BOOKERS.items() if booker in KINDS_OF_BOOKERS)


@pytest.fixture(autouse=True)
def stripe_pays(settings, stripe: FakeStripe) -> None:
    settings.SOUK_PAYOUT_RAILS = ["stripe"]


def test_every_type_that_stripe_names_has_its_row() -> None:
    [literal] = get_args(stripe_library.BalanceTransaction.__annotations__["type"])[:1]
    assert set(get_args(literal)) <= set(BOOKERS)
    assert booker_of("of tomorrow") == Booker.PERSON


@pytest.mark.parametrize("kind", BOOKED_BY_US)
def test_what_stripe_moves_by_itself_is_booked_once(stripe: FakeStripe, kind: str) -> None:
    stripe.fund(100_000)
    stripe.move(kind, -700, fee=20)
    sweeping.book_own_moves()
    sweeping.book_own_moves()
    scenes.assert_same_books(stripe)
    against = KINDS_OF_BOOKERS[BOOKERS[kind]]
    own = {AccountKind.OPERATOR_CASH: 100_000, AccountKind.STRIPE_FEE_EXPENSE: 0}
    fee = 20 if against == AccountKind.STRIPE_FEE_EXPENSE else 0
    assert ledger.balance(None, against) == (own.get(against, 0) - 700 - fee) * MICROS_PER_CENT
    assert reconcile(reason="by hand").is_clean and not breaker.is_open()


def test_entries_of_another_balance_of_ours_at_stripe_are_no_difference(stripe: FakeStripe) -> None:
    stripe.fund(100_000)
    stripe.move("reserve_hold", -5_000)
    stripe.move("reserve_hold", 5_000, balance="risk_reserved")
    sweeping.book_own_moves()
    scenes.assert_same_books(stripe)
    assert ledger.balance(None, AccountKind.STRIPE_IN_TRANSIT) == -5_000 * MICROS_PER_CENT
    assert reconcile(reason="by hand").is_clean


def test_another_currency_is_alerted_once_and_stops_no_dollar(stripe: FakeStripe) -> None:
    stripe.fund(100_000)
    stripe.fund(5_000, "eur")
    stripe.move("stripe_fee", -700)
    sweeping.book_own_moves()
    assert ledger.balance(None, AccountKind.STRIPE_FEE_EXPENSE) == -700 * MICROS_PER_CENT
    assert reconcile(reason="by hand").is_clean and not breaker.is_open()
    alert = Alert.objects.open().get(kind="stripe_currency")
    assert "eur" in alert.message
    alerts.close(alert.key)
    sweeping.book_own_moves()
    assert not Alert.objects.open().exists()
