"""A card payment that only pretends: a page of our own, marked FAKE, instead of Stripe's; on loopback only."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from django.conf import settings

from billing.deposits import Source
from billing.kinds import AccountKind
from billing.rails import loopback, stripe_rail

# Nothing came in at Stripe, so Stripe's mirror does not move: the operator answers for pretended money.
SOURCE: Final = Source("fake", AccountKind.OPERATOR_CASH)


def is_on() -> bool:
    """Whether cards are pretended; a key for Stripe always wins. Raises FakeMoneyRefused."""
    return not stripe_rail.is_configured() and loopback.is_fake_money_on("The fake card")


def url_of(top_up_id: UUID) -> str:
    """The page on which the top-up is paid, as if."""
    return f"{settings.SOUK_API_URL}/api/v1/fake-card/{top_up_id}"
