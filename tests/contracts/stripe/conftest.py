"""Two Stripes for one suite: the fake, and the test mode of the real one where STRIPE_TEST_KEY is given.

Every answer that any test of this folder gets is compared with the types of stripe-python.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import pytest
import stripe

from billing.rails.stripe.providers import CONTROLLER
from tests.contracts.stripe.comparing import differences_from_types
from tests.fakes.stripe import FakeStripe, start_fake

CALL_SECONDS_MAX: Final = 30.0
IMPATIENT_SECONDS: Final = 3.0  # of a caller whom nobody answers: long beside what a busy computer needs for a call


class RecordingClient(stripe.RequestsClient):
    """Keeps what came back, beside handing it on."""

    def __init__(self, seconds: float = CALL_SECONDS_MAX) -> None:
        super().__init__(timeout=seconds)
        self.answers: list[tuple[int, dict[str, Any], Mapping[str, str]]] = []

    def request(self, method: str, url: str, headers: Any, post_data: Any = None, **_: Any) -> Any:
        content, status, received = super().request(method, url, headers, post_data)
        self.answers.append((status, json.loads(content), received))
        return content, status, received


@dataclass
class World:
    """One Stripe, and how to speak to it; `fake` is None where it is the real one."""

    client: stripe.StripeClient
    http: RecordingClient
    secret_key: str
    fake: FakeStripe | None = None
    made: dict[str, str] = field(default_factory=dict)

    @property
    def v1(self) -> Any:
        return self.client.v1

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of the latest answer."""
        return {name.lower(): value for name, value in self.http.answers[-1][2].items()}

    def key(self) -> Any:
        """Options with an idempotency key that nobody used before."""
        return {"idempotency_key": str(uuid4())}

    def paid(self, cents: int = 5_000, method: str = "pm_card_visa", **more: Any) -> Any:
        """A payment that went through, with its charge and balance transaction expanded."""
        return self.v1.payment_intents.create(
            {
                "amount": cents,
                "currency": "usd",
                "capture_method": "automatic",
                "confirm": True,
                "payment_method": method,
                "automatic_payment_methods": {"allow_redirects": "never", "enabled": True},
                "expand": ["latest_charge.balance_transaction"],
                **more,
            }
        )

    def connected(self) -> str:
        """A connected account that may be paid; with the real Stripe only a person can make one."""
        if self.fake is None:
            account_id = os.environ.get("STRIPE_TEST_ACCOUNT")
            if not account_id:
                pytest.skip("set STRIPE_TEST_ACCOUNT to a connected account that was onboarded by hand")
            return account_id
        wanted: Any = {"controller": CONTROLLER, "country": "US", "capabilities": {"transfers": {"requested": True}}}
        made = self.v1.accounts.create(wanted)
        self.fake.onboard(made.id)
        return str(made.id)


@pytest.fixture(params=["fake", pytest.param("live", marks=pytest.mark.live_stripe)])
def world(request) -> Iterator[World]:
    if request.param == "live":
        key = os.environ.get("STRIPE_TEST_KEY", "")
        if not key.startswith(("sk_test_", "rk_test_")):
            pytest.skip("set STRIPE_TEST_KEY to a test mode key of Stripe to run this against the real one")
        http = RecordingClient()
        live = World(stripe.StripeClient(key, max_network_retries=2, http_client=http), http, key)
        yield live
        _check(live)
    else:
        with start_fake(seed=0) as fake:
            faked = _world_of(fake)
            yield faked
            _check(faked)
            fake.check()


@pytest.fixture
def faked() -> Iterator[World]:
    """The fake alone, for what cannot be requested of Stripe."""
    with start_fake(seed=0) as fake:
        fake.silence_seconds = CALL_SECONDS_MAX
        made = _world_of(fake)
        yield made
        _check(made)
        fake.check()


@pytest.fixture
def impatient(faked: World) -> World:
    """Another caller of that fake, who gives up soon: for calls that nobody answers."""
    assert faked.fake is not None
    return _world_of(faked.fake, seconds=IMPATIENT_SECONDS)


def _world_of(fake: FakeStripe, seconds: float = CALL_SECONDS_MAX) -> World:
    http = RecordingClient(seconds)
    client = stripe.StripeClient(
        fake.secret_key, base_addresses={"api": fake.url}, max_network_retries=0, http_client=http
    )
    return World(client, http, fake.secret_key, fake)


def _check(world: World) -> None:
    found = {line for status, body, _ in world.http.answers if status == 200 for line in differences_from_types(body)}
    assert not found, "\n".join(sorted(found))
