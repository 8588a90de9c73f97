"""Customers, cards, payments, Checkout and refunds: the same tests for the fake and for Stripe's test mode."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
import stripe

from tests.contracts.stripe.conftest import World


def save_card(world: World, method: str = "pm_card_visa") -> tuple[str, str]:
    customer = world.v1.customers.create({"name": "Alice"})
    card = world.v1.payment_methods.attach(method, {"customer": customer.id})
    return customer.id, card.id


def test_a_payment_books_its_amount_less_the_fee(world: World) -> None:
    intent = world.paid(10_000)
    booked = intent.latest_charge.balance_transaction
    assert (intent.status, intent.amount_received) == ("succeeded", 10_000)
    assert (booked.amount, booked.net, booked.type) == (10_000, 10_000 - booked.fee, "charge")
    assert sum(detail.amount for detail in booked.fee_details) == booked.fee


def test_unless_asked_otherwise_the_answer_comes_before_the_booking(world: World) -> None:
    intent = world.paid(capture_method="automatic_async")
    assert (intent.status, intent.latest_charge.balance_transaction) == ("succeeded", None)


def test_a_saved_card_is_charged_without_its_owner(world: World) -> None:
    customer, card = save_card(world)
    intent = world.paid(2_000, card, customer=customer, off_session=True)
    assert (intent.customer, intent.payment_method, intent.status) == (customer, card, "succeeded")


def test_saved_cards_are_listed_until_they_are_detached(world: World) -> None:
    customer, card = save_card(world)
    assert [one.id for one in world.v1.customers.payment_methods.list(customer).data] == [card]
    world.v1.payment_methods.detach(card)
    assert world.v1.customers.payment_methods.list(customer).data == []


def test_a_detached_card_cannot_be_charged_again(world: World) -> None:
    _, card = save_card(world)
    world.v1.payment_methods.detach(card)
    with pytest.raises(stripe.InvalidRequestError):
        world.paid(2_000, card)


def test_a_card_of_somebody_else_is_refused(world: World) -> None:
    _, card = save_card(world)
    mallory = world.v1.customers.create({"name": "Mallory"})
    with pytest.raises(stripe.InvalidRequestError):
        world.paid(2_000, card, customer=mallory.id, off_session=True)


@pytest.mark.parametrize(
    ("method", "code", "decline_code"),
    [
        ("pm_card_chargeDeclined", "card_declined", "generic_decline"),
        ("pm_card_chargeDeclinedInsufficientFunds", "card_declined", "insufficient_funds"),
        ("pm_card_chargeDeclinedExpiredCard", "expired_card", None),
    ],
)
def test_a_declined_card_leaves_the_intent_waiting_for_another(world: World, method, code, decline_code) -> None:
    with pytest.raises(stripe.CardError) as refusal:
        world.paid(method=method)
    error: Any = refusal.value.error
    assert (error.code, error.decline_code or None) == (code, decline_code)
    found = world.v1.payment_intents.retrieve(error.payment_intent.id)
    assert (found.status, found.amount_received) == ("requires_payment_method", 0)
    assert found.last_payment_error.code == code
    assert world.v1.charges.retrieve(found.latest_charge).status == "failed"


def test_a_declined_intent_succeeds_with_another_card(world: World) -> None:
    with pytest.raises(stripe.CardError) as refusal:
        world.paid(method="pm_card_chargeDeclined")
    found = refusal.value.error.payment_intent
    assert world.v1.payment_intents.confirm(found.id, {"payment_method": "pm_card_visa"}).status == "succeeded"


def test_a_card_that_can_be_saved_may_still_fail_when_charged(world: World) -> None:
    customer, card = save_card(world, "pm_card_chargeCustomerFail")
    with pytest.raises(stripe.CardError):
        world.paid(2_000, card, customer=customer, off_session=True)


def test_a_payment_that_needs_its_owner_says_so(world: World) -> None:
    intent = world.paid(method="pm_card_authenticationRequired", use_stripe_sdk=True)
    assert (intent.status, intent.next_action.type) == ("requires_action", "use_stripe_sdk")


def test_without_its_owner_such_a_payment_is_declined(world: World) -> None:
    customer, card = save_card(world, "pm_card_authenticationRequired")
    with pytest.raises(stripe.CardError) as refusal:
        world.paid(2_000, card, customer=customer, off_session=True)
    assert refusal.value.code == "authentication_required"


def test_an_intent_that_was_paid_cannot_be_paid_or_canceled_again(world: World) -> None:
    intent = world.paid()
    for verb in (world.v1.payment_intents.confirm, world.v1.payment_intents.cancel):
        with pytest.raises(stripe.InvalidRequestError) as refusal:
            verb(intent.id)
        assert refusal.value.code == "payment_intent_unexpected_state"


def test_a_payment_is_refunded_in_parts_and_never_beyond(world: World) -> None:
    intent = world.paid(5_000)
    first = world.v1.refunds.create({"payment_intent": intent.id, "amount": 2_000, "metadata": {"part": "1"}})
    with pytest.raises(stripe.InvalidRequestError):
        world.v1.refunds.create({"payment_intent": intent.id, "amount": 3_001})
    second = world.v1.refunds.create({"payment_intent": intent.id})
    assert (first.amount, second.amount) == (2_000, 3_000)
    charge = world.v1.charges.retrieve(intent.latest_charge.id)
    assert (charge.amount_refunded, charge.refunded) == (5_000, True)
    with pytest.raises(stripe.InvalidRequestError) as refusal:
        world.v1.refunds.create({"payment_intent": intent.id})
    assert refusal.value.code == "charge_already_refunded"
    assert {one.id for one in world.v1.refunds.list({"payment_intent": intent.id}).data} == {first.id, second.id}


def test_what_an_object_may_have_can_be_expanded_and_nothing_else(world: World) -> None:
    refund = world.v1.refunds.create(
        {"payment_intent": world.paid().id, "amount": 100, "expand": ["failure_balance_transaction"]}
    )
    assert refund.to_dict().get("failure_balance_transaction") is None
    with pytest.raises(stripe.InvalidRequestError):
        world.v1.refunds.retrieve(refund.id, {"expand": ["profit"]})


def test_a_checkout_session_is_open_until_it_expires(world: World) -> None:
    line = {"price_data": {"currency": "usd", "unit_amount": 900, "product_data": {"name": "Credit"}}, "quantity": 2}
    made = world.v1.checkout.sessions.create(
        {"mode": "payment", "line_items": [line], "success_url": "https://example.com/", "metadata": {"outbox_id": "1"}}
    )
    assert (made.status, made.payment_status, made.amount_total) == ("open", "unpaid", 1_800)
    assert made.url
    expired = world.v1.checkout.sessions.expire(made.id)
    assert (expired.status, expired.url) == ("expired", None)
    with pytest.raises(stripe.InvalidRequestError):
        world.v1.checkout.sessions.expire(made.id)


def test_metadata_is_merged_and_an_empty_value_unsets_a_key(world: World) -> None:
    made = world.v1.customers.create({"metadata": {"a": "1", "b": "2"}})
    changed = world.v1.customers.update(made.id, {"metadata": {"b": "", "c": "3"}})
    assert changed.metadata.to_dict() == {"a": "1", "c": "3"}


def test_lists_are_newest_first_and_paged_both_ways(world: World) -> None:
    email = f"{uuid4()}@example.com"
    ids = [world.v1.customers.create({"email": email}).id for _ in range(5)]
    newest = world.v1.customers.list({"email": email, "limit": 2})
    assert [one.id for one in newest.data] == [ids[4], ids[3]]
    assert newest.has_more
    older = world.v1.customers.list({"email": email, "limit": 2, "starting_after": ids[3]})
    assert [one.id for one in older.data] == [ids[2], ids[1]]
    newer = world.v1.customers.list({"email": email, "limit": 2, "ending_before": ids[1]})
    assert [one.id for one in newer.data] == [ids[3], ids[2]]
    everything = [one.id for one in world.v1.customers.list({"email": email, "limit": 2}).auto_paging_iter()]
    assert everything == ids[::-1]


def test_a_payment_leaves_its_events_in_the_log(world: World) -> None:
    intent = world.paid()
    wanted = {"types": ["payment_intent.succeeded"], "limit": 20}
    found = [one for one in world.v1.events.list(wanted).data if one.data.object["id"] == intent.id]
    assert [one.type for one in found] == ["payment_intent.succeeded"]
    assert found[0].data.object["status"] == "succeeded"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"amount": -5, "currency": "usd"}, "parameter_invalid_integer"),
        ({"amount": 0, "currency": "usd"}, "parameter_invalid_integer"),
        ({"amount": "5.5", "currency": "usd"}, "parameter_invalid_integer"),
        ({"amount": 49, "currency": "usd"}, "amount_too_small"),
        ({"amount": 100_000_000, "currency": "usd"}, "amount_too_large"),
        ({"currency": "usd"}, "parameter_missing"),
        ({"amount": 500, "currency": "usd", "profit": 1}, "parameter_unknown"),
    ],
)
def test_a_bad_amount_or_name_is_refused_by_its_code(world: World, wanted, code) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refusal:
        world.v1.payment_intents.create(wanted)
    assert (refusal.value.http_status, refusal.value.code) == (400, code)


def test_what_is_not_there_is_a_404_with_a_request_id(world: World) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refusal:
        world.v1.payment_intents.retrieve("pi_nothing")
    assert (refusal.value.http_status, refusal.value.code) == (404, "resource_missing")
    assert refusal.value.request_id.startswith("req_")


def test_a_wrong_key_is_refused(world: World) -> None:
    bases: Any = {"api": world.fake.url} if world.fake else {}
    stranger = stripe.StripeClient("sk_test_mallory", base_addresses=bases, max_network_retries=0)
    with pytest.raises(stripe.AuthenticationError) as refusal:
        stranger.v1.balance.retrieve()
    assert refusal.value.http_status == 401
