"""From earned to arrived: what is paid, when, and what happens when it is not."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from billing import dispatch
from billing.models import FakeMovement, Payout, PayoutSettings
from billing.payouts import paying, submission
from billing.payouts.errors import NothingToPay, PayoutNotFailed, PayoutUnderWay
from billing.payouts.outcomes import apply_outcome
from billing.payouts.running import run_payouts
from billing.rails.payouts import Fate, Outcome
from marketplace.foundation import clock
from marketplace.foundation.errors import NotFound
from marketplace.foundation.models import Event
from tests.integration.billing.payouts.scenes import (
    CENT,
    choose,
    earn,
    make_due,
    paid_outside,
    send,
    spendable,
    states,
    usd,
)
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true

pytestmark = pytest.mark.django_db


def test_a_provider_who_is_due_is_paid_everything_once_and_the_dust_stays(bob: UUID) -> None:
    earn(bob, 3 * DOLLAR + 7 * CENT + 123)
    choose(bob)
    assert run_payouts() == 1
    assert (states(bob), spendable(bob), paid_outside(bob)) == (["reserved"], 123, 0)
    dispatch.dispatch_due()
    assert (states(bob), spendable(bob), paid_outside(bob)) == (["confirmed"], 123, 3 * DOLLAR + 7 * CENT)
    payout = Payout.objects.get()
    assert payout.external_id == f"fake_{payout.pk}"
    reached = list(Event.objects.filter(subject_id=payout.pk).order_by("id").values_list("to_state", flat=True))
    assert reached == ["requested", "reserved", "submitted", "confirmed"]
    make_due(PayoutSettings.objects.get())
    assert run_payouts() == 0  # a cent is the smallest that can leave
    assert_ledger_is_true()


def test_nobody_is_paid_before_the_date_nor_below_the_minimum(bob: UUID) -> None:
    earn(bob, 3 * DOLLAR)
    row = choose(bob, minimum=4 * DOLLAR)
    assert run_payouts() == 0
    row.refresh_from_db()
    assert row.due_at > clock.now()  # tried again at the next date
    earn(bob, 2 * DOLLAR)
    assert run_payouts() == 0  # enough, and not due
    make_due(row)
    assert run_payouts() == 1


def test_who_asks_for_each_payout_is_paid_when_asking(bob: UUID) -> None:
    earn(bob)
    choose(bob, schedule="manual")
    assert run_payouts() == 0
    payout = paying.pay_now(bob, usd(), actor="bob@example.org")
    with pytest.raises(PayoutUnderWay):
        paying.pay_now(bob, usd(), actor="bob@example.org")
    dispatch.dispatch_due()
    payout.refresh_from_db()
    assert (payout.state, payout.amount, spendable(bob)) == ("confirmed", 10 * DOLLAR, 0)
    with pytest.raises(NothingToPay):
        paying.pay_now(bob, usd(), actor="bob@example.org")


def test_one_call_to_the_rail_carries_many_payouts(db: None) -> None:
    from uuid import uuid4

    providers = [uuid4() for _ in range(7)]
    for provider in providers:
        earn(provider, DOLLAR)
        choose(provider)
    assert run_payouts() == 7
    assert dispatch.dispatch_due() == 1
    assert all(paid_outside(provider) == DOLLAR for provider in providers)


def test_a_refused_payout_is_voided_exactly_and_its_cause_is_shown(bob: UUID) -> None:
    earn(bob)
    row = choose(bob, "fake:refused:bob")
    run_payouts()
    assert spendable(bob) == 0
    dispatch.dispatch_due()
    payout = Payout.objects.get()
    row.refresh_from_db()
    assert (payout.state, spendable(bob), paid_outside(bob)) == ("failed", 10 * DOLLAR, 0)
    assert "refuses" in payout.last_error == row.last_error
    assert row.failures == 1 and row.due_at > clock.now() + timedelta(hours=5)
    assert_ledger_is_true()


def test_after_so_many_failures_in_a_row_the_provider_has_to_act(bob: UUID) -> None:
    earn(bob)
    row = choose(bob, "fake:refused:bob")
    for _ in range(paying.FAILURES_MAX + 2):
        make_due(row)
        run_payouts()
        dispatch.dispatch_due()
    assert states(bob) == ["failed"] * paying.FAILURES_MAX
    choose(bob, "fake:refused:bob", minimum=DOLLAR)  # acts, if in vain
    run_payouts()
    assert len(states(bob)) == paying.FAILURES_MAX + 1


def test_a_failed_payout_is_tried_again_once_however_often_one_asks(bob: UUID) -> None:
    earn(bob)
    choose(bob, "fake:refused:bob", schedule="manual")
    failed = paying.pay_now(bob, usd(), actor="bob")
    with pytest.raises(PayoutNotFailed):
        paying.retry(bob, failed.pk, actor="bob")
    dispatch.dispatch_due()
    again = paying.retry(bob, failed.pk, actor="bob")
    assert paying.retry(bob, failed.pk, actor="bob") == again
    assert (again.retry_of, states(bob)) == (failed, ["failed", "reserved"])


def test_mallory_cannot_retry_bobs_payout(bob: UUID, alice: UUID) -> None:
    earn(bob)
    choose(bob, "fake:refused:bob", schedule="manual")
    failed = paying.pay_now(bob, usd(), actor="bob")
    dispatch.dispatch_due()
    with pytest.raises(NotFound):
        paying.retry(alice, failed.pk, actor="mallory")


def test_a_slow_payout_is_followed_until_it_arrives(bob: UUID) -> None:
    earn(bob)
    choose(bob, "fake:slow:bob")
    run_payouts()
    dispatch.dispatch_due()
    assert states(bob) == ["submitted"]
    assert submission.follow_payouts() == 0  # polled a moment ago
    Payout.objects.update(checked_at=clock.now() - submission.FOLLOW_EVERY * 2)
    assert submission.follow_payouts() == 1
    assert (states(bob), spendable(bob)) == (["confirmed"], 0)


def test_a_payout_that_comes_back_is_credited_again_exactly(bob: UUID) -> None:
    earn(bob)
    choose(bob, "fake:returned:bob")
    run_payouts()
    dispatch.dispatch_due()
    assert (states(bob), spendable(bob)) == (["confirmed"], 0)
    Payout.objects.update(checked_at=clock.now() - submission.RETURNS_EVERY * 2)
    for _ in range(2):
        submission.follow_payouts()
    assert (states(bob), spendable(bob), paid_outside(bob)) == (["returned"], 10 * DOLLAR, 0)
    assert_ledger_is_true()


@pytest.mark.parametrize("fates", [[Fate.CONFIRMED] * 3, [Fate.UNDER_WAY, Fate.CONFIRMED, Fate.UNDER_WAY]])
def test_what_is_reported_twice_or_late_is_booked_once(bob: UUID, fates: list[Fate]) -> None:
    earn(bob)
    choose(bob, "fake:slow:bob", schedule="manual")
    payout = paying.pay_now(bob, usd(), actor="bob")
    dispatch.dispatch_due()
    for fate in fates:
        apply_outcome(payout.pk, Outcome(fate, external_id="x"))
    assert (states(bob), spendable(bob)) == (["confirmed"], 0)
    assert_ledger_is_true()


def test_a_payout_never_changes_its_terms(bob: UUID) -> None:
    from django.db import IntegrityError, transaction

    earn(bob)
    choose(bob, schedule="manual")
    payout = paying.pay_now(bob, usd(), actor="bob")
    for change in ({"amount": 1}, {"destination": "fake:mallory"}, {"provider_id": payout.pk}, {"state": "confirmed"}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Payout.objects.filter(pk=payout.pk).update(**change)
    assert FakeMovement.objects.count() == 0
    send()
    assert states(bob) == ["confirmed"]
