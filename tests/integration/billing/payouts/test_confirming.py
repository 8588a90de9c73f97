"""Many payouts are confirmed at once, and each as it would be alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from billing import dispatch
from billing.account_kinds import AccountKind
from billing.books.chart_of_accounts import AccountName, open_account
from billing.models import Account, Alert, Payout, PayoutSettings, Transfer
from billing.notices import alerts
from billing.payouts import confirming, outcomes, submission
from billing.payouts.outcomes import apply_outcome, apply_outcomes
from billing.payouts.running import run_payouts
from billing.rails import registry
from billing.rails.payouts import Fate, Outcome
from billing.reconciliation.reconciling import reconcile
from billing.states import PayoutState
from tests.integration.billing.payouts.scenes import choose, earn, paid_outside, send, spendable, states
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, race

pytestmark = pytest.mark.django_db


def sent(count: int) -> list[Payout]:
    """Payouts that their rail has, and has not spoken of yet."""
    for _ in range(count):
        provider = uuid4()
        earn(provider, DOLLAR)
        choose(provider)
    run_payouts()
    return submission._claim(list(Payout.objects.filter(state=PayoutState.RESERVED).order_by("pk")))


def arrived(payouts: Sequence[Payout], *, cost: int = 0) -> dict[str, Outcome]:
    return {str(one.pk): Outcome(Fate.CONFIRMED, external_id=f"tr_{one.pk}", cost=cost) for one in payouts}


def freeze(provider: UUID, *, is_frozen: bool = True) -> None:
    clearing = open_account(AccountKind.PAYOUT_CLEARING, provider)
    Account.objects.filter(pk=clearing.pk).update(is_frozen=is_frozen)


def test_each_of_many_is_confirmed_as_it_would_be_alone() -> None:
    first, second = sent(2)
    PayoutSettings.objects.update(failures=2, last_error="before")
    alerts.raise_once(confirming.failed_key(first), kind="payout_failed", message="before")
    stranger = choose(uuid4())
    PayoutSettings.objects.filter(pk=stranger.pk).update(failures=1)
    assert apply_outcomes([first, second], arrived([first, second], cost=7)) == 2
    for payout in Payout.objects.all():
        assert (payout.state, payout.external_id, payout.cost) == ("confirmed", f"tr_{payout.pk}", 7)
        assert payout.closed_at and payout.checked_at
        group = Transfer.objects.filter(group_id=payout.pk).exclude(mode="pending").order_by("seq")
        assert [(one.code, one.amount) for one in group] == [("payout", DOLLAR), ("payout", DOLLAR), ("payout_cost", 7)]
        assert {one.external_ref for one in group} == {f"tr_{payout.pk}"}
    rows = PayoutSettings.objects.exclude(pk=stranger.pk)
    assert set(rows.values_list("failures", "last_error")) == {(0, "")}
    stranger.refresh_from_db()
    assert stranger.failures == 1
    assert not Alert.objects.open().exists()
    assert_ledger_is_true()


def test_a_payout_more_asks_the_database_once_more() -> None:
    counts = []
    for size in (1, 2, 12):  # the first opens accounts
        payouts = sent(size)
        with CaptureQueriesContext(connection) as asked:
            assert apply_outcomes(payouts, arrived(payouts)) == size
        counts.append(len(asked))
    assert counts[2] - counts[1] == 10


def test_one_that_cannot_be_booked_stops_no_other_and_is_reported_until_it_is() -> None:
    for _ in range(3):
        provider = uuid4()
        earn(provider, DOLLAR)
        choose(provider)
    run_payouts()
    providers = list(Payout.objects.order_by("created_at", "pk").values_list("provider_id", flat=True))
    freeze(providers[0])
    dispatch.dispatch_due()
    assert [states(provider) for provider in providers] == [["submitted"], ["confirmed"], ["confirmed"]]
    [alert] = Alert.objects.open()
    assert (alert.kind, alert.subject) == ("payout_stuck", str(Payout.objects.get(provider_id=providers[0]).pk))
    freeze(providers[0], is_frozen=False)
    assert submission.follow_payouts() == 1
    assert (states(providers[0]), paid_outside(providers[0])) == (["confirmed"], DOLLAR)
    assert not Alert.objects.open().exists()
    assert reconcile(reason="by hand").is_clean


def test_those_behind_a_stuck_payout_of_an_earlier_call_are_sent() -> None:
    for _ in range(2):
        provider = uuid4()
        earn(provider, DOLLAR)
        choose(provider)
    run_payouts()
    stuck, fresh = Payout.objects.order_by("pk")
    submission._claim([stuck])  # whoever had claimed it died after it had left
    registry.open_payouts("fake").submit([stuck])
    freeze(stuck.provider_id)
    send()
    assert states(stuck.provider_id) == ["submitted"]
    assert (states(fresh.provider_id), paid_outside(fresh.provider_id)) == (["confirmed"], DOLLAR)


def test_what_became_of_a_payout_meanwhile_is_not_booked_again() -> None:
    first, second = sent(2)
    apply_outcome(first.pk, Outcome(Fate.FAILED, message="closed"))
    assert apply_outcomes([first, second], arrived([first, second])) == 2  # one failed as we looked, one is confirmed
    assert (states(first.provider_id), spendable(first.provider_id)) == (["failed"], DOLLAR)
    assert states(second.provider_id) == ["confirmed"]
    assert Alert.objects.open().filter(kind="payout_contradicted").count() == 1  # the rail says both
    assert_ledger_is_true()


@pytest.mark.django_db(transaction=True)
def test_batches_and_single_news_of_the_same_payouts_at_once_book_each_once() -> None:
    payouts = sent(6)
    payout_ids = arrived(payouts)
    verbs: list[partial[Any]] = [
        partial(apply_outcomes, payouts, payout_ids),
        partial(apply_outcomes, payouts[::-1], payout_ids),
    ]
    verbs += [partial(apply_outcome, one.pk, payout_ids[str(one.pk)]) for one in payouts]
    answers = race(verbs * 2)
    assert not [each for each in answers if isinstance(each, Exception)], answers
    assert set(Payout.objects.values_list("state", flat=True)) == {"confirmed"}
    assert {spendable(one.provider_id) for one in payouts} == {0}
    assert_ledger_is_true()


@pytest.mark.django_db(transaction=True)
def test_a_batch_takes_its_accounts_in_the_order_of_everybody(caplog: pytest.LogCaptureFixture) -> None:
    """A post over many accounts takes them by their ids; a batch that took each payout's in turn would meet it."""
    payouts = sent(6)
    kinds = (AccountKind.PROVIDER_AVAILABLE, AccountKind.PAYOUT_CLEARING)
    ids = [sorted(AccountName(kind, one.provider_id).id for kind in kinds) for one in payouts]
    low, high = sorted(
        (min(pair[0] for pair in ids[1:]), ids[0][1])
    )  # ids are random: once in 66 times they are swapped
    has_low = Event()

    def lock_in_order() -> object:
        with transaction.atomic():
            Account.objects.select_for_update().get(pk=low)
            has_low.set()
            time.sleep(0.6)
            Account.objects.select_for_update().get(pk=high)
        return None

    def confirm() -> object:
        assert has_low.wait(timeout=20)
        return apply_outcomes(payouts, arrived(payouts))

    assert race([lock_in_order, confirm]) == [None, 6]
    assert "could not be confirmed" not in caplog.text  # nobody was sacrificed to a deadlock
    assert_ledger_is_true()


def test_a_batch_that_fails_is_confirmed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    payouts = sent(3)
    monkeypatch.setattr(outcomes, "_confirm_together", lambda *_, **__: 1 // 0)
    assert apply_outcomes(payouts, arrived(payouts)) == 3
    assert set(Payout.objects.values_list("state", flat=True)) == {"confirmed"}
