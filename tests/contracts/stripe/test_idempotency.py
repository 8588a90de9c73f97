"""What an Idempotency-Key promises, and what it does not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import stripe

from tests.contracts.stripe.conftest import World

WANTED: Any = {"amount": 700, "currency": "usd", "metadata": {"outbox_id": "7"}}


def test_the_same_key_replays_the_first_answer(world: World) -> None:
    options = world.key()
    first = world.v1.payment_intents.create(WANTED, options)
    request_id = world.headers["request-id"]
    assert "idempotent-replayed" not in world.headers
    again = world.v1.payment_intents.create(WANTED, options)
    assert again.id == first.id
    assert world.headers["idempotent-replayed"] == "true"
    assert world.headers["original-request"] == request_id
    assert world.headers["idempotency-key"] == options["idempotency_key"]


def test_another_call_under_the_same_key_is_refused(world: World) -> None:
    options = world.key()
    world.v1.payment_intents.create(WANTED, options)
    for call in (
        lambda: world.v1.payment_intents.create(WANTED | {"amount": 701}, options),
        lambda: world.v1.customers.create({"name": "Alice"}, options),
    ):
        with pytest.raises(stripe.IdempotencyError) as refusal:
            call()
        assert refusal.value.http_status == 400


def test_a_refused_card_is_refused_again_under_its_key(world: World) -> None:
    options = world.key()
    wanted = WANTED | {
        "confirm": True,
        "payment_method": "pm_card_chargeDeclined",
        "automatic_payment_methods": {"allow_redirects": "never", "enabled": True},
    }
    for _ in range(2):
        with pytest.raises(stripe.CardError):
            world.v1.payment_intents.create(wanted, options)
    assert world.headers["idempotent-replayed"] == "true"


def test_parameters_that_fail_validation_leave_the_key_free(world: World) -> None:
    options = world.key()
    with pytest.raises(stripe.InvalidRequestError):
        world.v1.payment_intents.create({"currency": "usd"}, options)
    assert world.v1.payment_intents.create(WANTED, options).amount == 700


def test_the_answer_names_the_version_it_was_made_for(world: World) -> None:
    world.v1.balance.retrieve()
    assert world.headers["stripe-version"] == stripe.api_version


def test_a_key_is_forgotten_after_a_day(faked: World) -> None:
    options = faked.key()
    first = faked.v1.payment_intents.create(WANTED, options)
    faked.fake.clock.advance(24 * 3600 - 1)
    assert faked.v1.payment_intents.create(WANTED, options).id == first.id
    faked.fake.clock.advance(1)
    assert faked.v1.payment_intents.create(WANTED, options).id != first.id
    assert faked.fake.effects("7") == 2


def test_two_calls_at_once_under_one_key_have_one_effect(faked: World) -> None:
    options = faked.key()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: faked.v1.payment_intents.create(WANTED, options).id, range(8)))
    assert len(set(made)) == 1
    assert faked.fake.effects("7") == 1
