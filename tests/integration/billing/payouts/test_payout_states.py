"""Every pair of a payout's states, tried by the code, by the database and by the rail's report: the table decides."""

from __future__ import annotations

from itertools import product
from uuid import UUID

import pytest
from django.db import IntegrityError, transaction

from billing.models import Payout, PayoutBreaker
from billing.payouts import paying
from billing.payouts.outcomes import apply_outcome
from billing.rails.payouts import Fate, Outcome
from billing.states import BREAKER_MACHINE, PAYOUT_MACHINE, PayoutState
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.state_triggers import edges_in_database, edges_of
from marketplace.foundation.states import advance
from tests.integration.billing.payouts.scenes import choose, earn, spendable, usd
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, past_the_triggers

pytestmark = pytest.mark.django_db

# (state, fate) -> (state after, does the provider have its money back)
EFFECTS = {
    ("reserved", Fate.ABSENT): ("reserved", False),
    ("reserved", Fate.UNDER_WAY): ("reserved", False),
    ("reserved", Fate.CONFIRMED): ("confirmed", False),
    ("reserved", Fate.FAILED): ("failed", True),
    ("reserved", Fate.RETURNED): ("returned", True),
    ("submitted", Fate.ABSENT): ("submitted", False),
    ("submitted", Fate.UNDER_WAY): ("submitted", False),
    ("submitted", Fate.CONFIRMED): ("confirmed", False),
    ("submitted", Fate.FAILED): ("failed", True),
    ("submitted", Fate.RETURNED): ("returned", True),
    ("confirmed", Fate.ABSENT): ("confirmed", False),
    ("confirmed", Fate.UNDER_WAY): ("confirmed", False),
    ("confirmed", Fate.CONFIRMED): ("confirmed", False),
    ("confirmed", Fate.FAILED): ("returned", True),
    ("confirmed", Fate.RETURNED): ("returned", True),
    **{(state, fate): (state, True) for state in ("failed", "returned") for fate in Fate},
}
WAY_TO = {
    "reserved": [],
    "submitted": [Fate.UNDER_WAY],
    "confirmed": [Fate.CONFIRMED],
    "failed": [Fate.FAILED],
    "returned": [Fate.RETURNED],
}


@pytest.fixture
def payout(bob: UUID) -> Payout:
    earn(bob)
    choose(bob, schedule="manual")
    return paying.pay_now(bob, usd(), actor="bob")


def put_in(payout: Payout, state: str) -> None:
    if state == "submitted":
        advance(payout, PayoutState.SUBMITTED)
    for fate in WAY_TO[state]:
        apply_outcome(payout.pk, Outcome(fate))
    payout.refresh_from_db()
    assert payout.state == state


@pytest.mark.parametrize(("state", "fate"), list(EFFECTS))
def test_a_rails_word_moves_a_payout_as_the_table_says(payout: Payout, bob: UUID, state: str, fate: Fate) -> None:
    put_in(payout, state)
    after, is_back = EFFECTS[state, fate]
    for _ in range(2):
        assert apply_outcome(payout.pk, Outcome(fate, external_id="ext")).state == after
        assert spendable(bob) == (10 * DOLLAR if is_back else 0)
    assert_ledger_is_true()


@pytest.mark.parametrize(("before", "after"), list(product(PayoutState.values, PayoutState.values)))
def test_no_pair_outside_of_the_table_is_allowed_by_code_or_database(payout: Payout, before: str, after: str) -> None:
    with past_the_triggers("billing_payout") as cursor:
        cursor.execute("UPDATE billing_payout SET state = %s WHERE id = %s", [before, payout.pk])
    payout.refresh_from_db()
    is_allowed = after in PAYOUT_MACHINE.transitions[before]
    try:
        with transaction.atomic():
            advance(payout, after)
    except StateConflict:
        assert not is_allowed
    else:
        assert is_allowed
        with past_the_triggers("billing_payout") as cursor:
            cursor.execute("UPDATE billing_payout SET state = %s WHERE id = %s", [before, payout.pk])
    if before != after and not is_allowed:
        with pytest.raises(IntegrityError), transaction.atomic():
            Payout.objects.filter(pk=payout.pk).update(state=after)


def test_the_triggers_are_those_of_the_tables() -> None:
    assert edges_in_database("billing_payout", PAYOUT_MACHINE) == edges_of(PAYOUT_MACHINE)
    assert edges_in_database("billing_payoutbreaker", BREAKER_MACHINE) == edges_of(BREAKER_MACHINE)


def test_the_table_of_effects_names_every_pair() -> None:
    assert set(EFFECTS) == set(product(set(PayoutState.values) - {"requested"}, Fate))


def test_a_payout_and_a_breaker_are_never_deleted(payout: Payout) -> None:
    PayoutBreaker.objects.create(cause="test")
    for rows in (Payout.objects.all(), PayoutBreaker.objects.all()):
        with pytest.raises(IntegrityError), transaction.atomic():
            rows.delete()
