"""Money is set aside, or the error has the missing amount."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from billing.charging import holds, settlement
from billing.errors import AlreadySettled, AmountInvalid, HoldConflict, HoldNotFound, InsufficientFunds
from billing.models import Hold
from billing.states import HoldState
from marketplace.foundation.models import Event
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, available, fund, held


def test_hold_moves_money_out_of_the_balance(alice: UUID, job_id: UUID) -> None:
    hold = holds.place_hold(owner_id=alice, job_id=job_id, amount=4 * DOLLAR)
    assert hold.state == HoldState.OPEN
    assert (available(alice), held(alice)) == (6 * DOLLAR, 4 * DOLLAR)
    assert holds.is_open(job_id)
    assert_ledger_is_true()


def test_too_little_money_says_how_much_is_missing_and_changes_nothing(alice: UUID, job_id: UUID) -> None:
    with pytest.raises(InsufficientFunds) as refused:
        holds.place_hold(owner_id=alice, job_id=job_id, amount=12 * DOLLAR + 1)
    assert refused.value.status == 402
    assert refused.value.missing == 2 * DOLLAR + 1
    assert refused.value.details["missing_units"] == "2000001"
    assert refused.value.message == "$2.000001 more is needed: this takes $12.000001, and $10.00 is there."
    assert available(alice) == 10 * DOLLAR
    assert not Hold.objects.filter(job_id=job_id).exists()
    assert_ledger_is_true()


def test_who_never_paid_in_can_hold_nothing(db: None, job_id: UUID) -> None:
    with pytest.raises(InsufficientFunds) as refused:
        holds.place_hold(owner_id=uuid4(), job_id=job_id, amount=1)
    assert (refused.value.available, refused.value.missing) == (0, 1)


def test_placing_the_same_hold_twice_holds_once(alice: UUID, job_id: UUID) -> None:
    first = holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    assert holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR) == first
    assert held(alice) == DOLLAR


def test_another_hold_for_the_same_job_is_refused(alice: UUID, job_id: UUID) -> None:
    holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    with pytest.raises(HoldConflict):
        holds.place_hold(owner_id=alice, job_id=job_id, amount=2 * DOLLAR)
    with pytest.raises(HoldConflict):
        holds.place_hold(owner_id=fund(uuid4()), job_id=job_id, amount=DOLLAR)


@pytest.mark.parametrize("amount", [0, -1])
def test_a_hold_is_above_zero(alice: UUID, job_id: UUID, amount: int) -> None:
    with pytest.raises(AmountInvalid):
        holds.place_hold(owner_id=alice, job_id=job_id, amount=amount)


def test_extending_adds_to_the_hold(alice: UUID, job_id: UUID) -> None:
    holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    assert holds.extend_hold(job_id, amount=2 * DOLLAR).amount == 3 * DOLLAR
    assert (available(alice), held(alice)) == (7 * DOLLAR, 3 * DOLLAR)
    assert_ledger_is_true()


def test_extending_beyond_the_balance_leaves_the_hold_as_it_was(alice: UUID, job_id: UUID) -> None:
    holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    with pytest.raises(InsufficientFunds):
        holds.extend_hold(job_id, amount=9 * DOLLAR + 1)
    assert Hold.objects.get(job_id=job_id).amount == DOLLAR
    assert_ledger_is_true()


def test_releasing_gives_everything_back_once(alice: UUID, job_id: UUID) -> None:
    holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    holds.extend_hold(job_id, amount=DOLLAR)
    released = holds.release_hold(job_id)
    assert released.state == HoldState.RELEASED
    assert holds.release_hold(job_id) == released
    assert (available(alice), held(alice)) == (10 * DOLLAR, 0)
    moves = Event.objects.filter(subject_kind="hold", subject_id=released.pk).order_by("id")
    assert list(moves.values_list("to_state", flat=True)) == ["open", "released"]
    assert_ledger_is_true()


def test_a_released_job_may_be_held_for_again(alice: UUID, job_id: UUID) -> None:
    holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    holds.release_hold(job_id)
    holds.place_hold(owner_id=alice, job_id=job_id, amount=2 * DOLLAR)
    assert held(alice) == 2 * DOLLAR


def test_nothing_is_released_or_extended_for_a_job_without_a_hold(db: None, job_id: UUID) -> None:
    with pytest.raises(HoldNotFound):
        holds.release_hold(job_id)
    with pytest.raises(HoldNotFound):
        holds.extend_hold(job_id, amount=1)


def test_the_money_of_a_settled_job_is_final(alice: UUID, job_id: UUID) -> None:
    holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    settlement.settle_job(job_id=job_id, charges=[], fee_bps=1000)
    with pytest.raises(AlreadySettled):
        holds.release_hold(job_id)
    with pytest.raises(AlreadySettled):
        holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
