"""Automatic top-ups: one at a time, up to a month's maximum, and paused when they fail."""

from __future__ import annotations

import logging
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db.models import F

from billing.charging import holds
from billing.errors import AmountInvalid
from billing.fiat import automatic, rules
from billing.fiat.errors import TopUpRefused, TopUpUnderWay
from billing.models import AutoTopUp, TopUp
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.scenes import DOLLAR, available
from tests.integration.billing.scenes import race

pytestmark = pytest.mark.django_db


def rule_of(owner_id: UUID, **changes: int | bool) -> AutoTopUp:
    fields = {"threshold": 10 * DOLLAR, "amount": 25 * DOLLAR, "monthly_max": 100 * DOLLAR, "is_enabled": True}
    return automatic.set_rule(owner_id, actor="alice", **(fields | changes))


def spend(owner_id: UUID) -> None:
    if available(owner_id):
        holds.place_hold(owner_id=owner_id, job_id=uuid4(), amount=available(owner_id))


def test_below_the_threshold_it_pays_in_and_above_it_does_not(stripe: FakeStripe, alice: UUID) -> None:
    scenes.save_card(stripe, alice)
    rule_of(alice)
    assert automatic.run_rules() == 1
    scenes.call_due()
    assert available(alice) == 25 * DOLLAR
    assert automatic.run_rules() == 0


def test_there_is_one_at_a_time(stripe: FakeStripe, alice: UUID) -> None:
    scenes.save_card(stripe, alice)
    rule_of(alice)
    assert [automatic.run_rules(), automatic.run_rules()] == [1, 0]
    with pytest.raises(TopUpUnderWay):
        scenes.ask(alice, method="automatic")


@pytest.mark.django_db(transaction=True)
def test_of_two_ticks_at_once_one_pays_in(stripe: FakeStripe, alice: UUID) -> None:
    scenes.save_card(stripe, alice)
    rule_of(alice)
    requested = race([automatic.run_rules] * 6)
    assert sorted(requested, key=int) == [0, 0, 0, 0, 0, 1]
    assert TopUp.objects.count() == 1


def test_a_months_maximum_holds_and_pauses_the_rule(stripe: FakeStripe, alice: UUID) -> None:
    scenes.save_card(stripe, alice)
    rule_of(alice, monthly_max=60 * DOLLAR)
    for _ in range(4):
        automatic.run_rules()
        scenes.call_due()
        spend(alice)
    assert TopUp.objects.filter(state="succeeded").count() == 2
    assert "maximum of $60.00" in AutoTopUp.objects.get().pause_reason
    rule_of(alice, monthly_max=75 * DOLLAR)  # the owner has looked at it
    assert automatic.run_rules() == 1


def test_failures_in_a_row_pause_it_and_say_so(
    stripe: FakeStripe, alice: UUID, caplog: pytest.LogCaptureFixture
) -> None:
    scenes.save_card(stripe, alice, "pm_card_chargeCustomerFail")
    rule_of(alice)
    with caplog.at_level(logging.WARNING, "billing.fiat.rules"):
        for _ in range(rules.FAILURES_MAX + 2):
            automatic.run_rules()
            scenes.call_due()
            assert automatic.run_rules() == 0  # not at once again
            TopUp.objects.update(created_at=F("created_at") - timedelta(hours=2))
    assert TopUp.objects.filter(state="failed").count() == rules.FAILURES_MAX
    rule = AutoTopUp.objects.get()
    assert rule.paused_at and "3 top-ups in a row failed" in rule.pause_reason
    assert "Automatic top-ups are paused." in caplog.text


def test_without_a_card_it_pauses(stripe: FakeStripe, alice: UUID) -> None:
    rule_of(alice)
    assert automatic.run_rules() == 0
    assert "no such card" in AutoTopUp.objects.get().pause_reason


def test_one_that_is_off_does_nothing(stripe: FakeStripe, alice: UUID) -> None:
    scenes.save_card(stripe, alice)
    rule_of(alice, is_enabled=False)
    assert automatic.run_rules() == 0


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"amount": 0}, TopUpRefused),
        ({"amount": 25 * DOLLAR + 1}, TopUpRefused),
        ({"amount": 10**80, "monthly_max": 10**80}, TopUpRefused),
        ({"threshold": -1}, AmountInvalid),
        ({"monthly_max": 24 * DOLLAR}, AmountInvalid),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(
    stripe: FakeStripe, alice: UUID, changes: dict[str, int], error: type[Exception]
) -> None:
    with pytest.raises(error):
        rule_of(alice, **changes)
