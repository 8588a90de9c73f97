"""P21: a payout takes no more than is available when it is reserved, and one that failed gives back exactly that."""

from __future__ import annotations

from functools import partial
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import open_account
from billing.errors import InsufficientFunds
from billing.models import Payout
from billing.payouts import paying
from billing.payouts.errors import NothingToPay, PayoutUnderWay
from billing.payouts.outcomes import apply_outcome
from billing.rails.payouts import Fate, Outcome
from billing.transfer_codes import TransferCode, TransferMode
from tests.integration.billing.payouts.scenes import CENT, choose, earn, spendable, usd
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, race

STEPS = st.lists(
    st.tuples(st.sampled_from(["earn", "pay", "fail", "confirm", "return"]), st.integers(1, 3 * DOLLAR)),
    min_size=1,
    max_size=12,
)


def clearing(provider: UUID) -> tuple[int, int]:
    """(reserved on its way out, arrived there)."""
    row = open_account(AccountKind.PAYOUT_CLEARING, provider)
    row.refresh_from_db()
    return int(row.credits_pending - row.debits_pending), int(row.credits_posted - row.debits_posted)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_P21_no_payout_is_above_what_is_available_and_a_failed_one_returns_it_all(
    db: None, steps: list[tuple[str, int]]
) -> None:
    with transaction.atomic():
        bob = uuid4()
        choose(bob, schedule="manual")
        has, under_way = 0, None
        for step, amount in [("earn", DOLLAR), ("pay", 1), *steps]:
            if step == "earn":
                earn(bob, amount)
                has += amount
            elif step == "pay":
                under_way, has = pay(bob, has, under_way)
            elif under_way is not None:
                has = end(under_way, step, has)
                under_way = None
            assert spendable(bob) == has, "P21"
            assert clearing(bob)[0] == (under_way.amount if under_way else 0), "P21"
        assert_ledger_is_true()
        transaction.set_rollback(True)


def pay(bob: UUID, has: int, under_way: Payout | None) -> tuple[Payout | None, int]:
    try:
        payout = paying.pay_now(bob, usd(), actor="bob")
    except (NothingToPay, PayoutUnderWay):
        assert under_way is not None or has < CENT
        return under_way, has
    assert payout.amount == has - has % CENT, "all of it, and no more"
    return payout, has - payout.amount


def end(payout: Payout, step: str, has: int) -> int:
    """What the provider can spend after the rail has spoken, twice."""
    amount = int(payout.amount)
    for _ in range(2):
        if step == "fail":
            apply_outcome(payout.pk, Outcome(Fate.FAILED, message="The account was closed."))
        else:
            apply_outcome(payout.pk, Outcome(Fate.CONFIRMED, external_id=f"fake_{payout.pk}"))
        if step == "return":
            apply_outcome(payout.pk, Outcome(Fate.RETURNED, external_id=f"fake_{payout.pk}_back"))
    return has if step == "confirm" else has + amount


@pytest.mark.django_db
def test_P21_the_database_refuses_a_reservation_above_what_is_available(bob: UUID) -> None:
    earn(bob, DOLLAR)
    available = open_account(AccountKind.PROVIDER_AVAILABLE, bob)
    out = open_account(AccountKind.PAYOUT_CLEARING, bob)

    def reservation(amount: int) -> ledger.NewTransfer:
        return ledger.NewTransfer(available, out, amount, TransferCode.PAYOUT, mode=TransferMode.PENDING)

    with pytest.raises(InsufficientFunds):
        ledger.post([reservation(DOLLAR + 1)])
    [reserved] = ledger.post([reservation(DOLLAR)])
    assert spendable(bob) == 0
    void = ledger.NewTransfer(
        available, out, DOLLAR, TransferCode.PAYOUT, mode=TransferMode.VOID, pending_id=reserved.pk
    )
    ledger.post([void])
    assert spendable(bob) == DOLLAR
    with pytest.raises(IntegrityError), transaction.atomic():
        ledger.post([void])
    assert spendable(bob) == DOLLAR


@pytest.mark.django_db(transaction=True)
def test_P21_of_a_failure_reported_by_six_at_once_one_gives_the_money_back(bob: UUID) -> None:
    earn(bob)
    choose(bob, schedule="manual")
    payout = paying.pay_now(bob, usd(), actor="bob")
    assert spendable(bob) == 0
    race([partial(apply_outcome, payout.pk, Outcome(Fate.FAILED, message="No such account."))] * 6)
    assert spendable(bob) == 10 * DOLLAR
    assert_ledger_is_true()
