"""Real connections that want the same payout at the same moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import pytest

from billing import dispatch
from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_account, open_accounts
from billing.breaker import open_breaker
from billing.charging import settlement
from billing.models import FakeMovement, Payout, PayoutBreaker, PayoutSettings, ReserveSlice
from billing.payouts import outcomes as outcomes_module
from billing.payouts import paying, rolling_reserve, running
from billing.payouts.outcomes import apply_outcome
from billing.payouts.running import run_payouts
from billing.rails.payouts import Fate, Outcome
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from marketplace.foundation.errors import SoukError
from tests.integration.billing.payouts.scenes import (
    choose,
    earn,
    keep,
    kept,
    make_due,
    paid_outside,
    spendable,
    states,
    usd,
)
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, race

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def true_at_the_end(transactional_db: None) -> Iterator[None]:
    yield
    assert_ledger_is_true()


def test_two_runs_at_once_pay_everybody_once(bob: UUID) -> None:
    providers = [uuid4() for _ in range(8)]
    for provider in providers:
        earn(provider)
        choose(provider)
    outcomes = race([run_payouts] * 4)
    assert sum(made for made in outcomes if isinstance(made, int)) == 8, outcomes
    race([dispatch.dispatch_due] * 4)
    assert [paid_outside(provider) for provider in providers] == [10 * DOLLAR] * 8
    assert FakeMovement.objects.count() == 8


def test_two_runs_without_the_lock_that_keeps_them_apart_still_pay_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock saves work; the rows' own locks and the ledger save money."""
    providers = [uuid4() for _ in range(6)]
    rows = []
    for provider in providers:
        earn(provider)
        rows.append(choose(provider))
    now = clock.now()
    outcomes = race([partial(running._pay_batch, [row.pk for row in rows], now, ["fake"])] * 4)
    assert sum(made for made in outcomes if isinstance(made, int)) == 6, outcomes
    race([dispatch.dispatch_due] * 3)
    assert [paid_outside(provider) for provider in providers] == [10 * DOLLAR] * 6


def test_of_many_who_ask_at_once_one_payout_is_made(bob: UUID) -> None:
    earn(bob)
    choose(bob, schedule="manual")
    outcomes = race([partial(paying.pay_now, bob, usd(), actor="bob")] * 6)
    assert sum(isinstance(outcome, Payout) for outcome in outcomes) == 1, outcomes
    assert all(isinstance(outcome, (Payout, SoukError)) for outcome in outcomes)
    assert (states(bob), spendable(bob)) == (["reserved"], 0)


def test_a_failed_payout_retried_by_many_at_once_is_retried_once(bob: UUID) -> None:
    earn(bob)
    choose(bob, "fake:refused:bob", schedule="manual")
    failed = paying.pay_now(bob, usd(), actor="bob")
    dispatch.dispatch_due()
    outcomes = race([partial(paying.retry, bob, failed.pk, actor="bob")] * 6)
    assert {type(outcome) for outcome in outcomes} == {Payout}, outcomes
    assert len({outcome.pk for outcome in outcomes if isinstance(outcome, Payout)}) == 1
    assert states(bob) == ["failed", "reserved"]


def test_contradicting_words_at_once_are_booked_in_one_order(bob: UUID) -> None:
    for _ in range(4):
        earn(bob, DOLLAR)
        choose(bob, "fake:slow:bob", schedule="manual")
        before = spendable(bob)
        payout = paying.pay_now(bob, usd(), actor="bob")
        dispatch.dispatch_due()
        outcomes = [Outcome(Fate.CONFIRMED), Outcome(Fate.FAILED), Outcome(Fate.RETURNED)]
        answers = race([partial(apply_outcome, payout.pk, outcome) for outcome in outcomes * 2])
        assert {type(answer) for answer in answers} == {Payout}, answers  # each waited for the one before it
        payout.refresh_from_db()
        assert (payout.state in {"failed", "returned"}, spendable(bob)) == (True, before)


def test_reserves_are_given_back_once_by_two_at_once(bob: UUID, settings: Any) -> None:
    settings.SOUK_RESERVE_BPS = 1000
    earn(bob, 10 * DOLLAR, leases=3)
    keep(bob)
    assert (kept(bob), spendable(bob)) == (3 * DOLLAR, 27 * DOLLAR)
    ReserveSlice.objects.update(release_at=clock.now())
    released = race([rolling_reserve.release_ripe] * 4)
    assert sum(count for count in released if isinstance(count, int)) == 3, released
    assert (kept(bob), spendable(bob)) == (0, 30 * DOLLAR)


def test_earning_keeping_paying_and_giving_back_at_once_never_deadlock(settings: Any) -> None:
    settings.SOUK_RESERVE_BPS = 1000
    settings.SOUK_RESERVE_DAYS = 1
    providers = [uuid4() for _ in range(4)]
    for provider in providers:
        earn(provider)
        choose(provider, schedule="manual")
        keep(provider)
    ReserveSlice.objects.update(release_at=clock.now())
    verbs: list[Any] = [rolling_reserve.release_ripe, settlement.release_pending] * 2
    for provider in providers:
        verbs += [partial(earn, provider, DOLLAR), partial(paying.pay_now, provider, usd(), actor="bob")]
    outcomes = race(verbs)
    wrong = [each for each in outcomes if isinstance(each, Exception) and not isinstance(each, SoukError)]
    assert wrong == []


def test_many_who_stop_payouts_at_once_open_one_breaker() -> None:
    outcomes = race([partial(open_breaker, "test")] * 6)
    assert {type(outcome) for outcome in outcomes} == {PayoutBreaker}, outcomes
    assert PayoutBreaker.objects.count() == 1


def test_a_payout_and_a_return_of_one_provider_never_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """The order forced: the payout has kept its reserve and not reserved yet when an earlier one comes back."""
    settings.SOUK_RESERVE_BPS = 1000
    kinds = (AccountKind.PAYOUT_CLEARING, AccountKind.PROVIDER_AVAILABLE)
    # Of a provider whose clearing account is locked first by whoever wants both.
    bob = next(one for one in iter(uuid4, None) if AccountName(kinds[0], one).id < AccountName(kinds[1], one).id)
    earn(bob)
    choose(bob, schedule="manual")
    clearing, available = open_accounts([AccountName(kind, bob) for kind in kinds])
    ledger.post([ledger.NewTransfer(open_account(AccountKind.ROUNDING), clearing, 5, TransferCode.CORRECTION)])
    keep, has_kept = rolling_reserve.keep, Event()

    def keep_and_dawdle(*args: Any, **kwargs: Any) -> object:
        amount = keep(*args, **kwargs)
        has_kept.set()
        time.sleep(0.5)
        return amount

    def come_back() -> object:
        assert has_kept.wait(timeout=20)
        return ledger.post([ledger.NewTransfer(clearing, available, 5, TransferCode.PAYOUT_RETURNED)])

    monkeypatch.setattr(rolling_reserve, "keep", keep_and_dawdle)
    outcomes = race([partial(paying.pay_now, bob, usd(), actor="bob"), come_back])
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)], outcomes


def test_a_return_days_later_and_the_next_payout_never_wait_for_each_other(
    bob: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order forced: what came back is in the ledger, and its failure is not counted yet, when the run comes."""
    earn(bob)
    choose(bob, "fake:returned:bob")
    run_payouts()
    dispatch.dispatch_due()
    [paid] = Payout.objects.all()
    earn(bob)
    make_due(PayoutSettings.objects.get())
    count, has_posted = outcomes_module._count_failure, Event()

    def count_and_dawdle(payout: Payout, cause: str) -> None:
        has_posted.set()
        time.sleep(0.5)
        count(payout, cause)

    def run() -> object:
        assert has_posted.wait(timeout=20)
        return running._pay_batch([PayoutSettings.objects.get().pk], clock.now(), ["fake"])

    monkeypatch.setattr(outcomes_module, "_count_failure", count_and_dawdle)
    answers = race([partial(apply_outcome, paid.pk, Outcome(Fate.RETURNED)), run])
    assert not [answer for answer in answers if isinstance(answer, Exception)], answers
    assert Payout.objects.get(pk=paid.pk).state == "returned"
