"""Every object the fake gives has the keys and types of Stripe's own fixture for it.

The fixtures are Stripe's (github.com/stripe/openapi, MIT) and no part of this project: STRIPE_FIXTURES names the file.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from billing.rails.stripe.providers import CONTROLLER
from tests.contracts.stripe.comparing import differences_from_fixture, differences_from_types
from tests.contracts.stripe.conftest import World

pytestmark = pytest.mark.stripe_fixtures


@cache
def fixtures() -> dict[str, Any]:
    name = os.environ.get("STRIPE_FIXTURES", "")
    if not name:
        pytest.skip("STRIPE_FIXTURES does not name Stripe's fixtures3.json")
    found: dict[str, Any] = json.loads(Path(name).read_text())["resources"]
    return found


def paid_transfer(world: World) -> Any:
    charge = world.paid(method="pm_card_bypassPending").latest_charge
    return world.v1.transfers.create(
        {"amount": 1_000, "currency": "usd", "destination": world.connected(), "source_transaction": charge.id}
    )


def paid_payout(world: World) -> Any:
    there = paid_transfer(world).destination
    return world.v1.payouts.create({"amount": 500, "currency": "usd"}, {"stripe_account": there})


def disputed(world: World) -> Any:
    charge = world.paid(method="pm_card_createDispute").latest_charge
    return world.v1.disputes.list({"charge": charge.id}).data[0]


def open_session(world: World, mode: str) -> Any:
    line = {"price_data": {"currency": "usd", "unit_amount": 900, "product_data": {"name": "Credit"}}, "quantity": 1}
    wanted: dict[str, Any] = {"mode": mode, "success_url": "https://example.com/"}
    wanted |= {"line_items": [line]} if mode == "payment" else {"currency": "usd"}
    return world.v1.checkout.sessions.create(wanted)


def paid_session(world: World) -> Any:
    made = open_session(world, "payment")
    world.fake.pay_session(made.id)
    return world.v1.checkout.sessions.retrieve(made.id)


def declined_intent(world: World) -> Any:
    made = world.v1.payment_intents.create({"amount": 900, "currency": "usd"})
    try:
        world.v1.payment_intents.confirm(made.id, {"payment_method": "pm_card_chargeDeclined"})
    except Exception:
        return world.v1.payment_intents.retrieve(made.id)
    raise AssertionError("the card was not declined")


MAKERS: dict[str, tuple[str, Any]] = {
    "customer": ("customer", lambda w: w.v1.customers.create({"email": "alice@example.com", "metadata": {"a": "1"}})),
    "deleted customer": ("deleted_customer", lambda w: w.v1.customers.delete(w.v1.customers.create().id)),
    "payment method": (
        "payment_method",
        lambda w: w.v1.payment_methods.attach("pm_card_visa", {"customer": w.v1.customers.create().id}),
    ),
    "setup intent": (
        "setup_intent",
        lambda w: w.v1.setup_intents.create(
            {"confirm": True, "payment_method": "pm_card_visa", "usage": "off_session"}
        ),
    ),
    "payment intent, new": (
        "payment_intent",
        lambda w: w.v1.payment_intents.create(
            {"amount": 900, "currency": "usd", "automatic_payment_methods": {"enabled": True}}
        ),
    ),
    "payment intent, paid": ("payment_intent", lambda w: w.v1.payment_intents.retrieve(w.paid().id)),
    "payment intent, declined": ("payment_intent", declined_intent),
    "payment intent, to be authenticated": (
        "payment_intent",
        lambda w: w.paid(method="pm_card_authenticationRequired"),
    ),
    "charge": ("charge", lambda w: w.v1.charges.retrieve(w.paid().latest_charge.id, {"expand": ["refunds"]})),
    "checkout session, open": ("checkout.session", lambda w: open_session(w, "payment")),
    "checkout session, setup": ("checkout.session", lambda w: open_session(w, "setup")),
    "checkout session, paid": ("checkout.session", paid_session),
    "balance": ("balance", lambda w: (w.paid(), w.v1.balance.retrieve())[1]),
    "balance transaction": ("balance_transaction", lambda w: w.paid().latest_charge.balance_transaction),
    "refund": ("refund", lambda w: w.v1.refunds.create({"payment_intent": w.paid().id, "amount": 100})),
    "dispute": ("dispute", disputed),
    "event": ("event", lambda w: (w.paid(), w.v1.events.list({"limit": 1}).data[0])[1]),
    "webhook endpoint": (
        "webhook_endpoint",
        lambda w: w.v1.webhook_endpoints.create({"url": "https://example.com/", "enabled_events": ["charge.failed"]}),
    ),
    "account, new": ("account", lambda w: w.v1.accounts.create({"controller": CONTROLLER})),
    "account, onboarded": ("account", lambda w: w.v1.accounts.retrieve(w.connected())),
    "bank account": (
        "bank_account",
        lambda w: w.v1.accounts.retrieve(w.connected()).external_accounts.data[0],
    ),
    "account link": (
        "account_link",
        lambda w: w.v1.account_links.create(
            {
                "account": w.connected(),
                "type": "account_onboarding",
                "return_url": "https://a",
                "refresh_url": "https://a",
            }
        ),
    ),
    "transfer": ("transfer", paid_transfer),
    "transfer reversal": (
        "transfer_reversal",
        lambda w: w.v1.transfers.reversals.create(paid_transfer(w).id, {"amount": 200}),
    ),
    "payout": ("payout", paid_payout),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_object_has_the_keys_and_types_of_stripes_fixture(faked: World, name: str) -> None:
    fixture_name, make = MAKERS[name]
    fixture = fixtures()[fixture_name]
    made = make(faked)
    body = made.to_dict()
    assert differences_from_fixture(body, fixture) == []
    assert differences_from_types(body) == []


def test_a_missing_key_and_a_wrong_type_are_found(faked: World) -> None:
    fixture = fixtures()["transfer"]
    body = paid_transfer(faked).to_dict()
    without = {name: value for name, value in body.items() if name != "reversed"}
    assert differences_from_fixture(without, fixture) == ["transfer.reversed: missing"]
    assert differences_from_fixture(body | {"amount": "1000"}, fixture) == ["transfer.amount: str, not number"]
    assert differences_from_fixture(body | {"profit": 1}, fixture) == ["transfer.profit: unknown"]
