"""Given credit is spent before money, comes back as credit, and is never cash."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.charging import promotions
from billing.contesting import disputes
from billing.errors import AmountInvalid, InsufficientFunds, PromoCodeRefused, PromotionConflict
from billing.models import PromoCode, PromotionGrant
from marketplace.foundation import clock
from tests.integration.billing.promotions.gifts import give, hold, settle
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, available, fund, race

pytestmark = pytest.mark.django_db


def credit_of(owner):
    return ledger.balance(owner, AccountKind.CUSTOMER_PROMOTION)


def code(**changes):
    fields = {"code": "WELCOME", "amount": DOLLAR, "uses_max": 2, "valid_until": clock.now() + timedelta(days=1)}
    return PromoCode.objects.create(**(fields | changes))


def test_a_gift_is_an_account_and_an_expense(alice):
    give(alice)
    assert (credit_of(alice), promotions.spendable(alice), available(alice)) == (3 * DOLLAR, 3 * DOLLAR, 10 * DOLLAR)
    assert ledger.balance(None, AccountKind.PROMO_EXPENSE) == -3 * DOLLAR
    assert_ledger_is_true()


def test_a_hold_takes_given_credit_first_and_money_for_the_rest(alice):
    give(alice)
    hold(alice, 4 * DOLLAR)
    assert (credit_of(alice), available(alice)) == (0, 9 * DOLLAR)
    assert_ledger_is_true()


def test_a_hold_that_credit_covers_takes_no_money(db):
    carol = uuid4()
    give(carol)
    hold(carol, 2 * DOLLAR)
    assert (credit_of(carol), available(carol)) == (DOLLAR, 0)


def test_a_hold_beyond_credit_and_money_takes_neither(alice):
    give(alice)
    with pytest.raises(InsufficientFunds):
        hold(alice, 14 * DOLLAR)
    assert (credit_of(alice), available(alice)) == (3 * DOLLAR, 10 * DOLLAR)


def test_a_job_uses_given_credit_first_and_the_rest_of_it_is_credit_again(alice, bob):
    give(alice)
    settle(hold(alice, 5 * DOLLAR), DOLLAR, bob)  # drew 3 of credit and 2 of money; both monies and 2 of credit return
    assert (credit_of(alice), available(alice)) == (2 * DOLLAR, 10 * DOLLAR)
    settle(hold(alice, 5 * DOLLAR), 4 * DOLLAR, bob)
    assert (credit_of(alice), available(alice)) == (0, 8 * DOLLAR)
    assert promotions.spendable(alice) == 0
    assert_ledger_is_true()


def test_a_gift_never_becomes_cash_by_placing_and_cancelling(db):
    mallory = uuid4()
    give(mallory)
    for _ in range(3):
        settle(hold(mallory, 3 * DOLLAR), 0)
    assert (available(mallory), credit_of(mallory)) == (0, 3 * DOLLAR)


def test_a_gift_never_becomes_cash_by_a_dispute(bob, settings):
    settings.SOUK_CHALLENGE_SECONDS = 86400
    mallory = uuid4()
    give(mallory)
    share = settle(hold(mallory, 3 * DOLLAR), 2 * DOLLAR, bob).shares.get()
    assert credit_of(mallory) == DOLLAR
    asked = {"customer_id": mallory, "lease_id": share.lease_id, "text": "It never ran.", "actor": "m@example.org"}
    dispute = disputes.open_dispute(**asked)
    parts = {"to_customer": 2 * DOLLAR, "to_provider": 0, "to_platform": 0}
    disputes.decide(dispute.pk, **parts, text="Yes.", actor="op@example.org")
    assert (available(mallory), credit_of(mallory)) == (0, 3 * DOLLAR)
    assert_ledger_is_true()


def test_what_expires_first_is_spent_first(alice):
    late, soon = give(alice, DOLLAR, days=30), give(alice, DOLLAR, days=1)
    hold(alice, DOLLAR)
    late.refresh_from_db()
    soon.refresh_from_db()
    assert (late.left, soon.left) == (DOLLAR, 0)


def test_expired_credit_is_not_spent_and_the_sweep_takes_it_once(alice):
    give(alice, days=0)
    assert promotions.spendable(alice) == 0
    hold(alice, DOLLAR)
    assert (credit_of(alice), available(alice)) == (3 * DOLLAR, 9 * DOLLAR)
    assert (promotions.expire_due(), promotions.expire_due()) == (1, 0)
    assert credit_of(alice) == 0
    assert ledger.balance(None, AccountKind.PROMO_EXPENSE) == 0
    assert_ledger_is_true()


def test_what_returns_to_an_expired_gift_expires_with_the_next_sweep(alice):
    given = give(alice)
    job_id = hold(alice, 3 * DOLLAR)
    PromotionGrant.objects.filter(pk=given.pk).update(expires_at=clock.now())
    settle(job_id, 0)
    assert (promotions.spendable(alice), credit_of(alice), available(alice)) == (0, 3 * DOLLAR, 10 * DOLLAR)
    assert promotions.expire_due() == 1
    assert credit_of(alice) == 0


def test_a_gift_counts_once_per_reference(alice):
    first = give(alice, reference="sorry 1")
    assert give(alice, reference="sorry 1") == first
    assert credit_of(alice) == 3 * DOLLAR
    with pytest.raises(PromotionConflict):
        give(alice, DOLLAR, reference="sorry 1")
    with pytest.raises(AmountInvalid):
        give(alice, 0)


def test_a_code_gives_once_an_organisation_and_only_so_often(alice, bob):
    code()
    promotions.redeem(alice, " welcome ", actor="alice@example.org")
    with pytest.raises(PromoCodeRefused, match="used it before"):
        promotions.redeem(alice, "WELCOME", actor="alice@example.org")
    promotions.redeem(bob, "WELCOME", actor="bob@example.org")
    with pytest.raises(PromoCodeRefused, match="used up"):
        promotions.redeem(uuid4(), "WELCOME", actor="mallory@example.org")
    assert (credit_of(alice), credit_of(bob)) == (DOLLAR, DOLLAR)


@pytest.mark.parametrize("change", [{"is_active": False}, {"valid_until": clock.now()}, {"code": "OTHER"}])
def test_a_code_that_is_over_or_unknown_gives_nothing(alice, change):
    code(**change)
    with pytest.raises(PromoCodeRefused, match="no such code"):
        promotions.redeem(alice, "WELCOME", actor="alice@example.org")
    assert credit_of(alice) == 0


@pytest.mark.django_db(transaction=True)
def test_many_who_want_the_last_use_of_a_code_get_one():
    code(uses_max=1)
    found = race([lambda: promotions.redeem(uuid4(), "WELCOME", actor="x")] * 6)
    assert sum(isinstance(each, PromoCodeRefused) for each in found) == 5
    assert PromotionGrant.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_jobs_placed_and_settled_at_once_never_spend_a_gift_twice_nor_deadlock():
    carol = fund(uuid4(), 10 * DOLLAR)
    give(carol)
    running = [hold(carol, DOLLAR) for _ in range(4)]
    verbs = [partial(settle, job, DOLLAR // 2) for job in running]
    verbs += [partial(hold, carol, DOLLAR)] * 4
    assert not [each for each in race(verbs) if isinstance(each, Exception)]
    assert credit_of(carol) == sum(grant.left for grant in PromotionGrant.objects.all())
    assert credit_of(carol) + available(carol) == 13 * DOLLAR - 4 * DOLLAR - 4 * DOLLAR // 2
    assert_ledger_is_true()


@settings(
    max_examples=20,
    phases=[Phase.explicit, Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_money_and_credit_are_each_kept_whatever_jobs_do(db, data):
    carol, money, gift = uuid4(), 5 * DOLLAR, data.draw(st.integers(1, 4 * DOLLAR), label="gift")
    fund(carol, money)
    give(carol, gift)
    spent = 0
    for _ in range(data.draw(st.integers(1, 4), label="jobs")):
        amount = data.draw(st.integers(1, 9 * DOLLAR), label="cap")
        try:
            job_id: UUID = hold(carol, amount)
        except InsufficientFunds:
            continue
        charged = data.draw(st.integers(0, amount), label="charged")
        settle(job_id, charged)
        spent += charged
    assert available(carol) + credit_of(carol) == money + gift - spent
    assert available(carol) <= money  # nothing given ever became money
    assert credit_of(carol) == sum(grant.left for grant in PromotionGrant.objects.filter(owner_id=carol))
    if spent <= gift:
        assert available(carol) == money  # and it was spent first
    assert_ledger_is_true()
