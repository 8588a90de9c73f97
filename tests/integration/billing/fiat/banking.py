"""Bob is paid by Stripe, and what may go wrong between his account there and his bank."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from django.db.models import F
from pytest_django import Settings

from billing.fiat import accounts
from billing.models import Alert, BankLeg, Payout
from billing.payouts import paying, preferences, submission
from billing.payouts.preferences import DesiredSettings
from billing.rails.stripe.client import Key, connect
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.fiat import scenes
from tests.integration.billing.payouts.scenes import earn, spendable, usd
from tests.integration.billing.scenes import DOLLAR

__all__ = ["spendable"]
EARNED = 20 * DOLLAR


def turn_on(stripe: FakeStripe, settings: Settings) -> None:
    """Providers are paid by Stripe, and nobody's pay is kept back."""
    settings.SOUK_PAYOUT_RAILS = ["stripe"]
    settings.SOUK_RESERVE_BPS = 0
    scenes.fund_platform(stripe)


def join(stripe: FakeStripe, *, owner_id: UUID | None = None) -> UUID:
    """A provider whose account at Stripe is ready."""
    provider = owner_id or uuid4()
    accounts.request_account(provider, country="US")
    scenes.call_until_done()
    stripe.onboard(account_of(provider))
    scenes.receive_events(stripe)
    preferences.choose(provider, usd(), DesiredSettings("stripe", account_of(provider), "manual"), actor="bob")
    return provider


def account_of(provider: UUID) -> str:
    return str(accounts.find(provider).stripe_id)


def pay(provider: UUID) -> Payout:
    """What the provider earned leaves, as far as Stripe lets it."""
    earn(provider, EARNED)
    payout = paying.pay_now(provider, usd(), actor="bob")
    scenes.call_until_done()
    payout.refresh_from_db()
    return payout


def bank_payouts(stripe: FakeStripe, payout: Payout) -> list[str]:
    return [str(one["id"]) for one in stripe.store.all("payout", payout.destination)]


def wait(until: timedelta = timedelta(hours=25)) -> None:
    """Time passes for the way to the bank, and the scheduled look comes."""
    BankLeg.objects.filter(next_at__isnull=False).update(next_at=F("next_at") - until)
    submission.follow_payouts()


def alert_kinds() -> set[str]:
    return set(Alert.objects.open().values_list("kind", flat=True))


def reverse_by_hand(payout: Payout, cents: int) -> str:
    """The operator does so in Stripe's dashboard; returns the reversal's id."""
    made = connect().reverse_transfer(
        payout.external_id, amount_cents=cents, metadata={"outbox_id": "by hand"}, key=Key(f"by hand {uuid4()}")
    )
    return made.id
