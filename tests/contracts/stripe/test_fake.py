"""What the fake can do that Stripe does not do on demand: its clock, its faults, its deliveries, its own accounts."""

from __future__ import annotations

from typing import Any

import pytest
import stripe

from tests.contracts.stripe.conftest import World
from tests.fakes.stripe import Fault, WebhookFaults, start_fake

PAID: Any = {
    "amount": 700,
    "currency": "usd",
    "confirm": True,
    "payment_method": "pm_card_visa",
    "metadata": {"outbox_id": "7"},
}
NOT_DONE = {Fault.TIMEOUT_BEFORE, Fault.RESET_BEFORE, Fault.UNAVAILABLE, Fault.RATE_LIMITED, Fault.KEY_IN_USE}
UNKNOWN = {Fault.TIMEOUT_BEFORE, Fault.TIMEOUT_AFTER, Fault.RESET_BEFORE, Fault.RESET_AFTER}


@pytest.mark.parametrize("fault", sorted(set(Fault) - {Fault.SLOW}))
def test_a_fault_happens_once_and_before_or_after_the_effect(faked: World, impatient: World, fault: Fault) -> None:
    faked.fake.script(fault, "/v1/payment_intents")
    options = faked.key()
    caller = impatient if fault in {Fault.TIMEOUT_BEFORE, Fault.TIMEOUT_AFTER} else faked
    with pytest.raises(stripe.StripeError) as failure:
        caller.v1.payment_intents.create(PAID, options)
    assert isinstance(failure.value, stripe.APIConnectionError) == (fault in UNKNOWN)
    assert faked.fake.effects("7") == fault.is_after
    if fault in {Fault.ERROR_BEFORE, Fault.ERROR_AFTER}:  # stored: only another key gets through
        with pytest.raises(stripe.APIError):
            faked.v1.payment_intents.create(PAID, options)
        assert faked.headers["idempotent-replayed"] == "true"
    else:
        assert faked.v1.payment_intents.create(PAID, options).status == "succeeded"
        assert faked.fake.effects("7") == 1


def test_a_slow_answer_comes(faked: World) -> None:
    faked.fake.slow_seconds = 0.1
    faked.fake.script(Fault.SLOW, "/v1/payment_intents")
    assert faked.v1.payment_intents.create(PAID).status == "succeeded"


def test_faults_by_chance_are_the_same_for_the_same_seed() -> None:
    chosen = []
    for seed in (3, 3, 4):
        with start_fake(seed=seed) as fake:
            fake.faults.at_random(0.5)
            chosen.append([fake.faults.choose("POST", f"/v1/{number}") for number in range(30)])
    assert chosen[0] == chosen[1] != chosen[2]
    assert None in chosen[0]
    assert len(set(chosen[0])) > 4


def test_reading_is_never_disturbed_by_chance(faked: World) -> None:
    faked.fake.faults.at_random(1.0)
    assert faked.v1.balance.retrieve().object == "balance"


def test_a_payment_becomes_available_by_the_clock(faked: World) -> None:
    net = faked.paid(10_000).latest_charge.balance_transaction.net
    assert faked.fake.balance == {"usd": (0, net)}
    faked.fake.clock.advance(2 * 24 * 3600 - 1)
    assert faked.fake.balance == {"usd": (0, net)}
    faked.fake.clock.advance(1)
    assert faked.fake.balance == {"usd": (net, 0)}


def test_a_late_booking_is_reported_by_an_event(faked: World) -> None:
    intent = faked.paid(capture_method="automatic_async")
    assert faked.fake.balance == {}
    faked.fake.clock.advance(1)
    assert faked.fake.events[-1]["type"] == "charge.updated"
    booked = faked.v1.charges.retrieve(intent.latest_charge.id, {"expand": ["balance_transaction"]}).balance_transaction
    assert faked.fake.balance == {"usd": (0, booked.net)}


def test_a_refund_waits_until_the_balance_covers_it(faked: World) -> None:
    intent = faked.paid(10_000, "pm_card_bypassPending")
    refund = faked.v1.refunds.create({"payment_intent": intent.id})  # more than the net that came in
    assert (refund.status, refund.balance_transaction) == ("pending", None)
    faked.fake.fund(1_000)
    faked.fake.clock.advance(1)
    assert faked.v1.refunds.retrieve(refund.id).status == "succeeded"


def test_a_refund_that_the_bank_refuses_comes_back(faked: World) -> None:
    faked.fake.fund(1_000)
    intent = faked.paid(5_000, "pm_card_refundFail")
    refund = faked.v1.refunds.create({"payment_intent": intent.id})
    assert refund.status == "succeeded"
    faked.fake.clock.advance(1)
    found = faked.v1.refunds.retrieve(refund.id)
    assert (found.status, found.failure_reason) == ("failed", "lost_or_stolen_card")
    assert faked.v1.charges.retrieve(intent.latest_charge.id).amount_refunded == 0


@pytest.mark.parametrize("method", ["pm_card_visa", "pm_card_authenticationRequired"])
def test_a_session_is_paid_on_its_page(faked: World, method: str) -> None:
    line = {"price_data": {"currency": "usd", "unit_amount": 900, "product_data": {"name": "Credit"}}, "quantity": 1}
    made = faked.v1.checkout.sessions.create(
        {
            "mode": "payment",
            "line_items": [line],
            "success_url": "https://example.com/",
            "payment_intent_data": {"metadata": {"outbox_id": "8"}},
        }
    )
    faked.fake.pay_session(made.id, "pm_card_chargeDeclined")
    assert faked.v1.checkout.sessions.retrieve(made.id).status == "open"
    paid = faked.fake.pay_session(made.id, method)
    assert (paid["status"], paid["payment_status"]) == ("complete", "paid")
    found = faked.v1.payment_intents.retrieve(paid["payment_intent"])
    assert (found.status, found.metadata["outbox_id"]) == ("succeeded", "8")
    with pytest.raises(ValueError, match="is complete"):
        faked.fake.pay_session(made.id)


def test_a_session_in_setup_mode_saves_the_card(faked: World) -> None:
    customer = faked.v1.customers.create()
    made = faked.v1.checkout.sessions.create(
        {"mode": "setup", "customer": customer.id, "currency": "usd", "success_url": "https://example.com/"}
    )
    faked.fake.pay_session(made.id)
    assert len(faked.v1.customers.payment_methods.list(customer.id).data) == 1
    assert faked.v1.setup_intents.retrieve(made.setup_intent).status == "succeeded"


def test_a_session_expires_by_the_clock(faked: World) -> None:
    made = faked.v1.checkout.sessions.create({"mode": "setup", "currency": "usd", "success_url": "https://a"})
    faked.fake.clock.advance(24 * 3600)
    assert faked.v1.checkout.sessions.retrieve(made.id).status == "expired"
    assert faked.fake.events[-1]["type"] == "checkout.session.expired"


@pytest.mark.parametrize("is_right", [True, False])
def test_the_bank_asks_and_the_customer_answers(faked: World, is_right: bool) -> None:
    intent = faked.paid(method="pm_card_authenticationRequired")
    faked.fake.authenticate(intent.id, succeeds=is_right)
    found = faked.v1.payment_intents.retrieve(intent.id)
    assert found.status == ("succeeded" if is_right else "requires_payment_method")


def test_search_is_blind_for_a_minute(faked: World) -> None:
    query = {"query": "metadata['outbox_id']:'7' AND status:'succeeded'"}
    made = faked.v1.payment_intents.create(PAID)
    assert faked.v1.payment_intents.search(query).data == []
    faked.fake.clock.advance(60)
    assert [one.id for one in faked.v1.payment_intents.search(query).data] == [made.id]
    assert faked.v1.payment_intents.search({"query": "metadata['outbox_id']:'8'"}).data == []


def test_events_are_signed_so_that_the_library_takes_them(faked: World) -> None:
    faked.paid()
    taken: list[str] = []

    def receive(body: bytes, signature: str) -> int:
        taken.append(stripe.Webhook.construct_event(body, signature, faked.fake.webhook_secret).type)
        return 200

    made = faked.fake.deliver(receive)
    assert taken == [one["type"] for one in faked.fake.events] == [one.type for one in made]
    assert faked.fake.deliver(receive) == []  # nothing new


def test_bad_deliveries_are_made_as_asked(faked: World) -> None:
    for _ in range(20):
        faked.paid()
    answers: list[tuple[str, bool]] = []

    def receive(body: bytes, signature: str) -> int:
        try:
            found = stripe.Webhook.construct_event(body, signature, faked.fake.webhook_secret)
        except stripe.SignatureVerificationError:
            return 400
        answers.append((found.id, True))
        return 200

    faults = WebhookFaults(duplicate=0.3, drop=0.2, delay=0.2, missign=0.2, stale=0.2, reorder=True, seed=1)
    made = faked.fake.deliver(receive, faults=faults)
    order = [one["id"] for one in faked.fake.events]
    arrived = [event_id for event_id, _ in answers]
    assert len(arrived) > len(set(arrived))  # twice
    assert set(arrived) < set(order)  # not all
    assert [order.index(one) for one in arrived] != sorted(order.index(one) for one in arrived)
    assert {one.status for one in made if one.fault in {"missign", "stale"}} == {400}
    late = faked.fake.deliver(receive)
    assert late
    assert set(arrived).isdisjoint(one.event_id for one in late)


def test_what_is_not_taken_is_brought_again(faked: World) -> None:
    faked.paid()
    first = faked.fake.deliver(refuse := lambda body, signature: 500)
    again = faked.fake.deliver(refuse)
    assert [one.event_id for one in again] == [one.event_id for one in first]


def test_an_endpoint_receives_what_it_asked_for(faked: World) -> None:
    made = faked.v1.webhook_endpoints.create(
        {"url": f"{faked.fake.url}/nobody", "enabled_events": ["charge.succeeded"]}
    )
    assert made.secret.startswith("whsec_")
    faked.paid()
    assert [(one.type, one.status) for one in faked.fake.deliver_to_endpoints()] == [("charge.succeeded", 401)]


def test_old_events_leave_the_log(faked: World) -> None:
    faked.paid()
    faked.fake.clock.advance(30 * 24 * 3600 + 1)
    faked.v1.customers.create()
    assert [one.type for one in faked.v1.events.list({"limit": 100}).data] == ["customer.created"]


def test_a_lost_booking_is_noticed(faked: World) -> None:
    intent = faked.paid()
    booked = faked.fake.store.find(intent.latest_charge.balance_transaction.id)[1]
    booked["net"] += 1
    with pytest.raises(AssertionError, match="booked"):
        faked.fake.check()
    booked["net"] -= 1


def test_a_warning_of_fraud_can_be_acted_on_until_its_payment_is_refunded(faked: World) -> None:
    assert faked.fake is not None
    charge = faked.paid().latest_charge
    made = faked.fake.warn_of_fraud(charge.id)
    found = faked.v1.radar.early_fraud_warnings.retrieve(made["id"])
    assert (found.charge, found.payment_intent, found.actionable) == (charge.id, charge.payment_intent, True)
    faked.fake.fund(10_000)
    faked.v1.refunds.create({"charge": charge.id})
    faked.fake.refresh_warning(made["id"])
    assert not faked.v1.radar.early_fraud_warnings.retrieve(made["id"]).actionable


@pytest.mark.parametrize(
    "wanted",
    [
        {"losses": {"payments": "application"}},
        {"requirement_collection": "application"},
        {"stripe_dashboard": {"type": "express"}, "fees": {"payer": "nobody"}},
    ],
)
def test_an_account_whose_controller_contradicts_itself_is_refused(faked: World, wanted: Any) -> None:
    with pytest.raises(stripe.InvalidRequestError, match="controller"):
        faked.v1.accounts.create({"controller": wanted})
