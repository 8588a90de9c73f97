"""A Stripe of our own behind the real rail, and the webhook behind the real view."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from pytest_django import Settings

from tests.fakes.stripe import FakeStripe, start_fake


@pytest.fixture
def stripe(settings: Settings) -> Iterator[FakeStripe]:
    with start_fake() as fake:
        settings.SOUK_STRIPE_KEY = fake.secret_key
        settings.SOUK_STRIPE_API_BASE = fake.url
        settings.SOUK_STRIPE_WEBHOOK_SECRETS = [fake.webhook_secret]
        fake.clock.advance(int(time.time()) - fake.clock.now())
        yield fake
        fake.check()


@pytest.fixture
def alice(db: None) -> UUID:
    """She has nothing yet: what she has comes in by card."""
    return uuid4()
