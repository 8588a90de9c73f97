"""A process dies at every seam of a payout, before a step and after it; what is left is finished, with one effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from billing import dispatch
from billing.models import FakeMovement
from billing.payouts import paying, submission
from billing.payouts.running import run_payouts
from billing.rails.errors import RailError
from billing.rails.fake.payout_rail import FakePayouts
from billing.reconciliation.reconciling import reconcile
from marketplace.foundation import outbox
from tests.integration.billing.payouts.scenes import (
    choose,
    earn,
    make_due,
    paid_outside,
    send,
    spendable,
    states,
)
from tests.integration.billing.payouts.seams import SEAMS
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true

pytestmark = pytest.mark.django_db


class Killed(BaseException):
    """The power went out: nothing catches it."""


def fail_once(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, *, when: str, error: type[BaseException]) -> None:
    """The next call of this function dies before or after its work; those after it work."""
    original: Callable[..., Any] = getattr(place, name)
    died: list[bool] = []

    def dying(*args: Any, **kwargs: Any) -> Any:
        if not died and when == "before":
            died.append(True)
            raise error("dead")
        result = original(*args, **kwargs)
        if not died:
            died.append(True)
            raise error("dead")
        return result

    monkeypatch.setattr(place, name, dying)


def recover(row: Any) -> None:
    """What the ticks do when the process is back, with the clock far enough on."""
    for _ in range(3):
        make_due(row)
        run_payouts()
        send()
        submission.follow_payouts()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("place", "name"), SEAMS, ids=[name for _, name in SEAMS])
@pytest.mark.parametrize("destination", ["fake:bob", "fake:slow:bob"])
def test_a_payout_that_died_at_a_seam_arrives_once(
    bob: UUID, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, when: str, destination: str
) -> None:
    earn(bob)
    row = choose(bob, destination)
    fail_once(monkeypatch, place, name, when=when, error=Killed)
    monkeypatch.setattr(submission, "FOLLOW_EVERY", submission.FOLLOW_EVERY * 0)
    with pytest.raises(Killed):
        run_payouts()
        dispatch.dispatch_due()
        submission.follow_payouts()
    monkeypatch.setattr(submission, "LOST_AFTER", submission.LOST_AFTER * 0)
    recover(row)
    assert (states(bob), spendable(bob), paid_outside(bob)) == (["confirmed"], 0, 10 * DOLLAR)
    assert FakeMovement.objects.count() == 1
    assert reconcile(reason="by hand").is_clean
    assert_ledger_is_true()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["submit", "find"])
def test_a_rail_that_answers_nothing_is_asked_again_and_pays_once(
    bob: UUID, monkeypatch: pytest.MonkeyPatch, name: str, when: str
) -> None:
    earn(bob)
    choose(bob)
    fail_once(monkeypatch, FakePayouts, "submit", when="after", error=RailError)
    if name == "find":
        fail_once(monkeypatch, FakePayouts, "find", when=when, error=RailError)
    run_payouts()
    dispatch.dispatch_due()
    assert (states(bob), spendable(bob)) == (["submitted"], 0)  # the outcome is unknown: the money stays aside
    for _ in range(2):
        send()
    assert (states(bob), paid_outside(bob)) == (["confirmed"], 10 * DOLLAR)


def test_an_unknown_outcome_is_looked_up_before_anything_is_sent_again(
    bob: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    earn(bob)
    choose(bob)
    fail_once(monkeypatch, FakePayouts, "submit", when="after", error=RailError)
    run_payouts()
    dispatch.dispatch_due()

    def never(*args: Any) -> Any:
        raise AssertionError("sent again without a look")

    monkeypatch.setattr(FakePayouts, "submit", never)
    send()
    assert states(bob) == ["confirmed"]


def test_a_call_that_failed_for_good_is_made_again_by_another(bob: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    earn(bob)
    choose(bob)
    run_payouts()
    [message] = outbox.claim([paying.SUBMIT])
    outbox.fail(message, "hopeless", retry=False)
    monkeypatch.setattr(submission, "LOST_AFTER", submission.LOST_AFTER * 0)
    assert submission.heal_lost() == 1
    assert submission.heal_lost() == 0  # its new call waits
    send()
    assert states(bob) == ["confirmed"]
