"""One frozen account, or one short one, must not stop anybody else's money."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import open_account
from billing.charging import promotions, settlement
from billing.contesting import disputes
from billing.models import Account, SettlementShare
from billing.states import DisputeState
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from tests.integration.billing.disputes import scenes
from tests.integration.billing.promotions.gifts import give, hold
from tests.integration.billing.promotions.gifts import settle as settle_job
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, available, fund

pytestmark = pytest.mark.django_db

LATER = timedelta(days=400)


def freeze(kind: AccountKind, owner: UUID, *, is_frozen: bool = True) -> None:
    """As the operator does, or a chargeback."""
    Account.objects.filter(pk=open_account(kind, owner).pk).update(is_frozen=is_frozen)


def test_a_job_ends_while_its_owners_balance_is_frozen_though_it_drew_given_credit(alice: UUID, bob: UUID) -> None:
    give(alice, 3 * DOLLAR)
    job_id = hold(alice, 5 * DOLLAR)
    freeze(AccountKind.CUSTOMER_AVAILABLE, alice)
    settle_job(job_id, DOLLAR, bob)
    # Of the three dollars given, one was used: two are credit again; the two of money are money.
    assert (promotions.spendable(alice), available(alice)) == (2 * DOLLAR, 10 * DOLLAR)
    assert open_account(AccountKind.CUSTOMER_AVAILABLE, alice).is_frozen
    assert scenes.pending(bob) == 900_000
    assert_ledger_is_true()


def test_unanswered_disputes_are_closed_behind_one_whose_customer_is_frozen(alice: UUID, bob: UUID) -> None:
    give(alice, 3 * DOLLAR)
    job_id = hold(alice, 3 * DOLLAR)
    settle_job(job_id, DOLLAR, bob)
    first = SettlementShare.objects.get(settlement__job_id=job_id)
    carol = fund(uuid4())
    second = scenes.settle(carol, bob)
    made = [
        disputes.open_dispute(customer_id=owner, lease_id=share.lease_id, text="It never ran.", actor="a")
        for owner, share in ((alice, first), (carol, second))
    ]
    freeze(AccountKind.CUSTOMER_AVAILABLE, alice)
    assert disputes.sweep(clock.now() + LATER) == 2
    for dispute in made:
        dispute.refresh_from_db()
        assert dispute.state == DisputeState.DECIDED
    assert (promotions.spendable(alice), available(alice), available(carol)) == (3 * DOLLAR, 10 * DOLLAR, 10 * DOLLAR)
    assert_ledger_is_true()


def test_a_dispute_that_cannot_be_closed_does_not_stop_those_behind_it(alice: UUID, bob: UUID) -> None:
    carol = fund(uuid4())
    first, second = scenes.settle(alice, bob), scenes.settle(carol, bob)
    made = [
        disputes.open_dispute(customer_id=owner, lease_id=share.lease_id, text="It never ran.", actor="a")
        for owner, share in ((alice, first), (carol, second))
    ]
    freeze(AccountKind.DISPUTED, made[0].pk)
    assert disputes.sweep(clock.now() + LATER) == 1
    made[1].refresh_from_db()
    assert made[1].state == DisputeState.DECIDED and available(carol) == 10 * DOLLAR


def test_a_provider_who_is_frozen_delays_nobody_elses_pay(alice: UUID, bob: UUID) -> None:
    mallory = uuid4()
    stuck = scenes.settle(alice, mallory, charged=DOLLAR)
    share = scenes.settle(alice, bob, charged=DOLLAR)
    freeze(AccountKind.PROVIDER_PENDING, mallory)
    assert settlement.release_pending(clock.now() + LATER) == 1
    assert (scenes.earned(bob), scenes.earned(mallory)) == (900_000, 0)
    share.refresh_from_db()
    stuck.refresh_from_db()
    assert share.released_at is not None and stuck.released_at is None
    freeze(AccountKind.PROVIDER_PENDING, mallory, is_frozen=False)
    assert settlement.release_pending(clock.now() + LATER) == 1
    assert scenes.earned(mallory) == 900_000
    assert_ledger_is_true()


def test_given_credit_of_a_frozen_owner_does_not_keep_everybodys_alive(alice: UUID) -> None:
    carol = uuid4()
    give(alice, DOLLAR)
    give(carol, DOLLAR, days=31)
    freeze(AccountKind.CUSTOMER_PROMOTION, alice)
    assert promotions.expire_due(clock.now() + LATER) == 1
    assert scenes.has(carol, AccountKind.CUSTOMER_PROMOTION) == 0
    assert_ledger_is_true()


def test_a_provider_whose_books_are_short_delays_nobody_elses_pay(alice: UUID, bob: UUID) -> None:
    """By whatever mistake: here what was pending has gone another way."""
    mallory = uuid4()
    scenes.settle(alice, mallory, charged=DOLLAR)
    scenes.settle(alice, bob, charged=DOLLAR)
    pending, pool = open_account(AccountKind.PROVIDER_PENDING, mallory), open_account(AccountKind.SLASH_POOL)
    ledger.post([ledger.NewTransfer(pending, pool, 1, TransferCode.SLASH)])
    assert settlement.release_pending(clock.now() + LATER) == 1
    assert (scenes.earned(bob), scenes.earned(mallory)) == (900_000, 0)
