"""A new provider's pay stays in part, for a while; nobody else's does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import open_account
from billing.models import Account, Payout, PayoutSettings, ReserveSlice
from billing.payouts import rolling_reserve
from billing.payouts.running import run_payouts
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from tests.integration.billing.payouts.scenes import choose, earn, keep, kept, spendable, usd
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def a_tenth_is_kept(fake_rail: None, settings: Any) -> None:
    settings.SOUK_RESERVE_BPS = 1000


def test_a_new_provider_is_paid_all_but_the_reserve_and_the_reserve_in_time(bob: UUID, settings: Any) -> None:
    earn(bob)
    choose(bob)
    run_payouts()
    assert Payout.objects.get().amount == 9 * DOLLAR
    assert (kept(bob), spendable(bob)) == (DOLLAR, 0)
    found = rolling_reserve.next_release(bob, asset_id=1)
    assert found is not None
    at, amount = found
    assert (amount, at.date()) == (DOLLAR, (clock.now() + timedelta(days=settings.SOUK_RESERVE_DAYS)).date())
    assert rolling_reserve.release_ripe() == 0
    assert rolling_reserve.release_ripe(clock.now() + timedelta(days=31)) == 1
    assert (kept(bob), spendable(bob)) == (0, DOLLAR)
    assert_ledger_is_true()


def test_of_each_lease_the_part_is_kept_once(bob: UUID) -> None:
    earn(bob, leases=2)
    assert [keep(bob) for _ in range(3)] == [2 * DOLLAR, 0, 0]
    earn(bob, 5 * DOLLAR)
    assert keep(bob) == DOLLAR // 2
    assert keep(bob, asset_id=2) == 0


def test_probation_lasts_for_days_and_for_settlements(bob: UUID, settings: Any) -> None:
    assert rolling_reserve.is_on_probation(bob)
    settings.SOUK_PROBATION_SETTLEMENTS = 2
    earn(bob)
    later = clock.now() + timedelta(days=settings.SOUK_PROBATION_DAYS, seconds=5)
    assert rolling_reserve.is_on_probation(bob, later)  # one settlement only
    earn(bob)
    assert rolling_reserve.is_on_probation(bob)  # enough settlements, too few days
    assert not rolling_reserve.is_on_probation(bob, later)


def test_nothing_is_kept_of_a_provider_who_is_known(bob: UUID, settings: Any) -> None:
    settings.SOUK_PROBATION_SETTLEMENTS, settings.SOUK_PROBATION_DAYS = 1, 0
    earn(bob)
    assert keep(bob) == 0
    assert not ReserveSlice.objects.exists()


def test_what_a_chargeback_took_is_not_given_back(bob: UUID) -> None:
    earn(bob, leases=2)
    keep(bob)
    loss = open_account(AccountKind.CHARGEBACK_LOSS)
    taken = ledger.NewTransfer(
        open_account(AccountKind.PROVIDER_RESERVE, bob), loss, 1_500_000, TransferCode.CHARGEBACK_RECOVERY
    )
    ledger.post([taken])
    rolling_reserve.release_ripe(clock.now() + timedelta(days=31))
    assert (kept(bob), sum(ReserveSlice.objects.values_list("released", flat=True))) == (0, 500_000)
    assert_ledger_is_true()


def test_what_was_given_back_after_its_slice_was_over_does_not_stay_for_ever(bob: UUID) -> None:
    earn(bob, leases=2)
    keep(bob)
    loss, mine = open_account(AccountKind.CHARGEBACK_LOSS), open_account(AccountKind.PROVIDER_RESERVE, bob)
    ledger.post([ledger.NewTransfer(mine, loss, 1_500_000, TransferCode.CHARGEBACK_RECOVERY)])
    later = clock.now() + timedelta(days=31)
    rolling_reserve.release_ripe(later)
    ledger.post([ledger.NewTransfer(loss, mine, 1_500_000, TransferCode.CHARGEBACK_WON)])
    earn(bob)
    keep(bob)  # what a slice stands for stays
    rolling_reserve.release_ripe()
    assert (kept(bob), spendable(bob)) == (DOLLAR, 29 * DOLLAR)
    assert_ledger_is_true()


def test_more_than_is_there_is_never_kept(bob: UUID) -> None:
    earn(bob)
    sink = open_account(AccountKind.CHARGEBACK_LOSS)
    available = open_account(AccountKind.PROVIDER_AVAILABLE, bob)
    ledger.post([ledger.NewTransfer(available, sink, 10 * DOLLAR - 5, TransferCode.CHARGEBACK_RECOVERY)])
    assert keep(bob) == 5
    assert (kept(bob), spendable(bob)) == (5, 0)


def test_a_frozen_reserve_waits_and_stops_nobody_elses(bob: UUID, alice: UUID) -> None:
    for provider in (alice, bob):
        earn(provider)
        keep(provider)
    Account.objects.filter(owner_id=bob, kind=AccountKind.PROVIDER_RESERVE).update(is_frozen=True)
    later = clock.now() + timedelta(days=31)
    assert rolling_reserve.release_ripe(later) == 1
    assert (kept(bob), kept(alice)) == (DOLLAR, 0)
    Account.objects.update(is_frozen=False)
    assert rolling_reserve.release_ripe(later) == 1


def test_one_provider_who_cannot_be_paid_stops_no_other(bob: UUID, alice: UUID) -> None:
    for provider in (alice, bob):
        earn(provider)
        choose(provider)
    Account.objects.filter(owner_id=bob, kind=AccountKind.PROVIDER_AVAILABLE).update(is_frozen=True)
    assert run_payouts() == 1
    [paid] = Payout.objects.all()
    assert paid.provider_id == alice
    assert "frozen" in PayoutSettings.objects.get(provider_id=bob, asset=usd()).last_error
