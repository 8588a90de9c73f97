"""A hold that its settler closes: receipts count for a while yet, and a false close is stopped."""

from __future__ import annotations

import pytest

from tests.unit.billing.contract.chain import Chain, address
from tests.unit.billing.contract.scene import DAY, HOLD_CLOSES, HOUR, Scene, id32, only

CLOSE_SECONDS = 6 * HOUR


@pytest.fixture
def closing(chain: Chain) -> Scene:
    """A hold of 10,000 that the settler has begun to close, in an escrow that takes its time for that."""
    scene = Scene.make(chain, close_seconds=CLOSE_SECONDS)
    scene.open_hold()
    scene.register()
    at = scene.now() + CLOSE_SECONDS
    args = only(scene.do("settler", "closeHold", address("alice"), id32("job")), "HoldClosing")
    assert args == {"jobId": id32("job"), "customer": address("alice"), "closesAt": at}
    return scene


@pytest.mark.parametrize("seconds", [-1, 0, 1])
def test_receipts_count_until_the_hold_closes_and_then_anybody_refunds(closing: Scene, seconds: int) -> None:
    closes_at = closing.view("holds", address("alice"), id32("job"))[HOLD_CLOSES]
    receipt = closing.receipt()
    closing.chain.at(closes_at + seconds)
    if seconds <= 0:
        closing.refuses("TooEarly", "mallory", "refundExpired", address("alice"), id32("job"))
        closing.do("settler", "settleLease", *receipt, [])
    else:
        closing.refuses("TooLate", "settler", "settleLease", *receipt, [])
        args = only(closing.do("mallory", "refundExpired", address("alice"), id32("job")), "HoldClosed")
        assert args == {"jobId": id32("job"), "customer": address("alice"), "refunded": 10_000, "expired": False}


def test_a_second_close_puts_nothing_off(closing: Scene) -> None:
    closing.refuses("HoldIsClosing", "settler", "closeHold", address("alice"), id32("job"))


def test_a_close_never_puts_the_customers_refund_off(chain: Chain) -> None:
    scene = Scene.make(chain, close_seconds=30 * DAY)
    scene.open_hold(hours=0, deadline=scene.now() + HOUR)
    deadline = scene.now() + HOUR
    scene.do("settler", "closeHold", address("alice"), id32("job"))
    scene.chain.at(deadline + scene.terms.grace_seconds + 1)
    scene.do("mallory", "refundExpired", address("alice"), id32("job"))
    assert scene.available("alice") == 10_000


@pytest.mark.parametrize("who", ["arbiter", "pauser"])
def test_a_false_close_is_stopped_and_the_provider_is_paid(closing: Scene, who: str) -> None:
    for name in ("settler", "admin", "alice", "bob", "mallory"):
        closing.refuses("NotAllowed", name, "reopenHold", address("alice"), id32("job"))
    args = only(closing.do(who, "reopenHold", address("alice"), id32("job")), "HoldReopened")
    assert args == {"jobId": id32("job"), "customer": address("alice")}
    closing.refuses("NotAllowed", who, "reopenHold", address("alice"), id32("job"))
    closing.chain.at(closing.now() + CLOSE_SECONDS + 1)
    closing.refuses("TooEarly", "mallory", "refundExpired", address("alice"), id32("job"))
    closing.settle()
    closing.do("settler", "closeHold", address("alice"), id32("job"))  # it may begin again


def test_what_can_be_refunded_is_not_opened_again(closing: Scene) -> None:
    closing.chain.at(closing.now() + CLOSE_SECONDS + 1)
    closing.refuses("TooLate", "arbiter", "reopenHold", address("alice"), id32("job"))
    closing.refuses("UnknownHold", "arbiter", "reopenHold", address("anna"), id32("job"))
    closing.do("mallory", "refundExpired", address("alice"), id32("job"))
    closing.refuses("HoldIsClosed", "arbiter", "reopenHold", address("alice"), id32("job"))
