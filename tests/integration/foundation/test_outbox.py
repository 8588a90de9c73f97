"""Calls to the outside are written once, leased to one worker, and tried again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from marketplace.foundation import clock, outbox
from marketplace.foundation.errors import OutboxConflict, StateConflict
from marketplace.foundation.models import OutboxMessage
from tests.integration.racing import race

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_call_is_claimed_made_and_done() -> None:
    outbox.enqueue("payout", "payout:1", {"amount": 5})
    (message,) = outbox.claim(["payout"])
    outbox.done(message, external_id="po_1")
    assert OutboxMessage.objects.get().state == "done"
    assert outbox.claim(["payout"]) == []


def test_one_business_key_is_one_call() -> None:
    first = outbox.enqueue("payout", "payout:1", {"amount": 5})
    assert outbox.enqueue("payout", "payout:1", {"amount": 5}).pk == first.pk
    with pytest.raises(OutboxConflict):
        outbox.enqueue("payout", "payout:1", {"amount": 6})


def test_two_workers_never_claim_the_same_call() -> None:
    for number in range(20):
        outbox.enqueue("payout", f"payout:{number}", {})
    claims = race(*[lambda: outbox.claim(["payout"], limit=5)] * 4)
    claimed = [message.pk for claim in claims if isinstance(claim, list) for message in claim]
    assert len(claimed) == len(set(claimed)) > 0


def test_a_worker_claims_only_its_kinds() -> None:
    outbox.enqueue("payout", "payout:1", {})
    assert outbox.claim(["refund"]) == []


def test_the_call_of_a_dead_worker_is_claimed_by_another_which_alone_may_finish_it() -> None:
    outbox.enqueue("payout", "payout:1", {})
    (dead,) = outbox.claim(["payout"], lease_seconds=-1)
    (alive,) = outbox.claim(["payout"])
    with pytest.raises(StateConflict):
        outbox.done(dead)
    outbox.done(alive)


def test_a_call_whose_lease_went_to_another_is_left_to_them() -> None:
    outbox.enqueue("payout", "payout:1", {})
    (slow,) = outbox.claim(["payout"], lease_seconds=-1)
    assert outbox.renew(slow)
    assert outbox.claim(["payout"]) == []
    assert outbox.renew(slow, lease_seconds=-1)
    (other,) = outbox.claim(["payout"])
    assert not outbox.renew(slow) and outbox.renew(other)
    outbox.done(other)
    assert not outbox.renew(other)


def test_a_failed_call_is_tried_again_later() -> None:
    outbox.enqueue("payout", "payout:1", {})
    (message,) = outbox.claim(["payout"])
    outbox.fail(message, "timed out")
    assert outbox.claim(["payout"]) == []
    OutboxMessage.objects.update(next_at=clock.now() - timedelta(seconds=1))
    (again,) = outbox.claim(["payout"])
    assert (again.attempts, again.last_error) == (2, "timed out")


def test_a_call_that_keeps_failing_is_given_up() -> None:
    outbox.enqueue("payout", "payout:1", {})
    for _ in range(outbox.ATTEMPTS_MAX):
        OutboxMessage.objects.update(next_at=clock.now())
        (message,) = outbox.claim(["payout"])
        outbox.fail(message, "no")
    assert OutboxMessage.objects.get().state == "failed"


def test_a_call_that_cannot_succeed_is_given_up_at_once() -> None:
    outbox.enqueue("payout", "payout:1", {})
    (message,) = outbox.claim(["payout"])
    assert outbox.fail(message, "no such account", retry=False).state == "failed"
