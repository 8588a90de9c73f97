"""What a customer contests waits, and is split exactly once, to the last unit (P24)."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.charging import settlement
from billing.contesting import disputes
from billing.errors import DisputeInvalid, DisputeNotFound, NothingToDispute, SplitInvalid
from billing.models import Alert, Dispute, SettlementShare
from billing.states import DisputeState
from marketplace.foundation import clock
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.models import Event
from tests.integration.billing.disputes.scenes import CHARGED, FEE, PAID, earned, fees, frozen, pending, settle
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, available, fund, race

pytestmark = pytest.mark.django_db
LATER = timedelta(days=40)


@pytest.fixture
def share(alice, bob):
    return settle(alice, bob)


def contest(share, **changes):
    asked = {"customer_id": share.settlement.owner_id, "lease_id": share.lease_id, "text": "It never ran."}
    return disputes.open_dispute(**(asked | {"actor": "alice@example.org"} | changes))


def decide(dispute, to_customer, to_provider, to_platform=0):
    parts = {"to_customer": to_customer, "to_provider": to_provider, "to_platform": to_platform}
    return disputes.decide(dispute.pk, **parts, text="Both are right.", actor="op@example.org")


def test_an_open_dispute_freezes_pay_and_fee_and_release_leaves_it_alone(alice, bob, share):
    before = fees()
    dispute = contest(share)
    assert (dispute.paid, dispute.fee, dispute.amount) == (PAID, FEE, CHARGED)
    assert (pending(bob), frozen(), fees()) == (0, CHARGED, before - FEE)
    assert settlement.release_pending(clock.now() + LATER) == 0
    assert earned(bob) == 0
    assert_ledger_is_true()


def test_other_shares_are_released_while_one_is_contested(alice, bob, share):
    settle(alice, bob, charged=1000)
    contest(share)
    assert settlement.release_pending(clock.now() + LATER) == 1
    assert earned(bob) == 900


def test_the_provider_answers_and_the_operator_splits(alice, bob, share):
    before = fees() - FEE
    dispute = contest(share)
    disputes.answer(dispute.pk, provider_id=bob, text="It ran.", actor="bob@example.org")
    decided = decide(dispute, 1_000_000, 200_000, 34_567)
    assert decided.state == DisputeState.DECIDED
    assert available(alice) == 10 * DOLLAR - CHARGED + 1_000_000
    assert (earned(bob), fees(), frozen(), pending(bob)) == (200_000, before + 34_567, 0, 0)
    assert settlement.release_pending(clock.now() + LATER) == 0
    steps = Event.objects.filter(subject_id=dispute.pk).order_by("id").values_list("to_state", "actor")
    assert list(steps) == [
        ("opened", "alice@example.org"),
        ("answered", "bob@example.org"),
        ("decided", "op@example.org"),
    ]
    assert_ledger_is_true()


def test_a_withdrawn_dispute_leaves_everything_as_it_was(alice, bob, share):
    before = fees()
    dispute = contest(share)
    disputes.withdraw(dispute.pk, customer_id=alice, actor="alice@example.org")
    assert (pending(bob), fees(), frozen()) == (PAID, before, 0)
    assert settlement.release_pending(clock.now() + LATER) == 1
    assert earned(bob) == PAID
    with pytest.raises(NothingToDispute, match="before"):
        contest(share)


def test_silence_of_the_provider_gives_everything_to_the_customer(alice, bob, share):
    dispute = contest(share)
    assert disputes.sweep() == 0
    assert disputes.sweep(dispute.answer_until) == 1
    assert disputes.sweep(dispute.answer_until) == 0
    assert (available(alice), earned(bob)) == (10 * DOLLAR, 0)
    assert Dispute.objects.get().decided_by == "system"


def test_an_undecided_dispute_raises_one_alert_and_deciding_closes_it(alice, bob, share):
    dispute = contest(share)
    answered = disputes.answer(dispute.pk, provider_id=bob, text="It ran.", actor="bob@example.org")
    for _ in range(2):
        assert disputes.sweep(answered.decide_until) == 1
    assert Alert.objects.open().get().kind == "dispute_undecided"
    decide(dispute, CHARGED, 0)
    assert not Alert.objects.open().exists()


def test_an_answer_after_the_deadline_or_of_a_stranger_is_refused(alice, bob, share, settings):
    settings.SOUK_DISPUTE_ANSWER_SECONDS = 0
    dispute = contest(share)
    with pytest.raises(StateConflict, match="past its deadline"):
        disputes.answer(dispute.pk, provider_id=bob, text="It ran.", actor="bob@example.org")
    for stranger in (uuid4(), alice):
        with pytest.raises(DisputeNotFound):
            disputes.answer(dispute.pk, provider_id=stranger, text="It ran.", actor="mallory@example.org")
    with pytest.raises(DisputeNotFound):
        disputes.withdraw(dispute.pk, customer_id=bob, actor="bob@example.org")


def test_only_ones_own_charged_lease_inside_its_window_can_be_contested(alice, bob, share):
    with pytest.raises(NothingToDispute, match="among yours"):
        contest(share, customer_id=uuid4())
    with pytest.raises(NothingToDispute, match="among yours"):
        contest(share, lease_id=uuid4())
    with pytest.raises(NothingToDispute, match="nothing was charged"):
        contest(settle(alice, bob, charged=0))
    settlement.release_pending(clock.now() + LATER)
    with pytest.raises(NothingToDispute, match="window is over"):
        contest(share)
    assert not Dispute.objects.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": "  "},
        {"text": "x" * 8001},
        {"attachments": [{"name": "log", "sha256": "0" * 63}]},
        {"attachments": [{"name": "", "sha256": "0" * 64}]},
        {"attachments": [{"name": "log", "sha256": "0" * 64}] * 21},
    ],
)
def test_what_cannot_be_filed_is_refused_and_nothing_moves(bob, share, wrong):
    with pytest.raises(DisputeInvalid):
        contest(share, **wrong)
    assert pending(bob) == PAID


@pytest.mark.parametrize("parts", [(CHARGED, 1, 0), (CHARGED - 1, 0, 0), (CHARGED + 1, -1, 0), (0, 0, 0)])
def test_a_split_that_is_not_the_disputed_amount_is_refused(share, parts):
    dispute = contest(share)
    with pytest.raises(SplitInvalid):
        decide(dispute, *parts)
    assert frozen() == CHARGED


def test_nothing_is_decided_twice_nor_changed_after(alice, bob, share):
    dispute = contest(share)
    decide(dispute, CHARGED, 0)
    with pytest.raises(StateConflict):
        decide(dispute, 0, CHARGED)
    with pytest.raises(StateConflict):
        disputes.withdraw(dispute.pk, customer_id=alice, actor="alice@example.org")
    for change in ("UPDATE billing_dispute SET decision = 'x'", "DELETE FROM billing_dispute"):
        with pytest.raises(IntegrityError, match="immutable"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(change)
    assert (available(alice), earned(bob)) == (10 * DOLLAR, 0)


def test_the_database_refuses_a_split_that_does_not_add_up(share):
    dispute = contest(share)
    with pytest.raises(IntegrityError, match="dispute_split_exactly"), transaction.atomic():
        Dispute.objects.filter(pk=dispute.pk).update(
            state="decided", closed_at=clock.now(), to_customer=CHARGED, to_provider=1, to_platform=0
        )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_p24_any_split_adds_up_to_what_was_disputed(bob, data):
    carol = fund(uuid4(), 20 * DOLLAR)
    charged = data.draw(st.integers(1, 10 * DOLLAR), label="charged")
    dispute = contest(settle(carol, bob, charged=charged, held=10 * DOLLAR))
    to_customer = data.draw(st.integers(0, charged), label="customer")
    to_provider = data.draw(st.integers(0, charged - to_customer), label="provider")
    to_platform = charged - to_customer - to_provider
    before = available(carol), earned(bob), fees()
    decide(dispute, to_customer, to_provider, to_platform)
    after = available(carol), earned(bob), fees()
    assert tuple(b - a for a, b in zip(before, after, strict=True)) == (to_customer, to_provider, to_platform)
    assert frozen() == 0
    assert_ledger_is_true()


@pytest.mark.django_db(transaction=True)
def test_of_two_who_decide_at_once_one_does():
    alice, bob = fund(uuid4()), uuid4()
    dispute = contest(settle(alice, bob))
    found = race([lambda: decide(dispute, CHARGED, 0), lambda: decide(dispute, 0, CHARGED)] * 2)
    assert sum(isinstance(each, StateConflict) for each in found) == 3
    assert sorted([available(alice) - 10 * DOLLAR + CHARGED, earned(bob)]) == [0, CHARGED]
    assert_ledger_is_true()


@pytest.mark.django_db(transaction=True)
def test_release_and_dispute_at_once_never_spend_the_same_pay():
    alice, bob = fund(uuid4()), uuid4()
    share = settle(alice, bob)
    now = SettlementShare.objects.get().challenge_until
    race([lambda: contest(share), lambda: settlement.release_pending(now)])
    assert (earned(bob), frozen()) in {(PAID, 0), (0, CHARGED)}
    assert_ledger_is_true()
