"""A hold is split once, and its parts add up to it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.charging import holds, settlement
from billing.charging.settlement import LeaseCharge
from billing.errors import ChargeAboveHold, ChargesInvalid, HoldNotFound
from billing.models import Hold, Settlement, SettlementShare
from billing.states import HoldState
from marketplace.foundation import clock
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, available, fund, held

HOLD = 4 * DOLLAR


def pending(owner_id: UUID) -> int:
    return ledger.balance(owner_id, AccountKind.PROVIDER_PENDING)


def spendable(owner_id: UUID) -> int:
    return ledger.balance(owner_id, AccountKind.PROVIDER_AVAILABLE)


@pytest.fixture
def held_job(alice: UUID, job_id: UUID) -> UUID:
    holds.place_hold(owner_id=alice, job_id=job_id, amount=HOLD)
    return job_id


def test_the_hold_is_split_between_provider_platform_and_customer(alice: UUID, bob: UUID, held_job: UUID) -> None:
    fees_before = ledger.balance(None, AccountKind.FEE_REVENUE)
    settled = settlement.settle_job(job_id=held_job, charges=[LeaseCharge(uuid4(), bob, 1_234_567)], fee_bps=1000)
    assert (settled.charged, settled.refunded) == (1_234_567, HOLD - 1_234_567)
    assert (settled.fee, settled.paid) == (123_456, 1_111_111)
    assert pending(bob) == 1_111_111
    assert ledger.balance(None, AccountKind.FEE_REVENUE) == fees_before + 123_456
    assert (available(alice), held(alice)) == (10 * DOLLAR - 1_234_567, 0)
    assert Hold.objects.get(job_id=held_job).state == HoldState.CAPTURED
    assert_ledger_is_true()


def test_the_fee_of_a_lease_that_is_settled_in_parts_is_rounded_down_once(
    alice: UUID, bob: UUID, held_job: UUID
) -> None:
    lease_id, parts = uuid4(), (15, 15, 15)
    charged = 0
    for part in parts[:-1]:
        settlement.settle_part(job_id=held_job, charges=[LeaseCharge(lease_id, bob, part, charged)], fee_bps=1000)
        charged += part
    last = settlement.settle_job(
        job_id=held_job, charges=[LeaseCharge(lease_id, bob, parts[-1], charged)], fee_bps=1000
    )
    # A tenth of 15, 30 and 45, rounded down: 1, 3, 4. Each part apart would be 1, and 3 in all.
    fees = Settlement.objects.filter(job_id=held_job).order_by("created_at").values_list("fee", "paid")
    assert [(int(fee), int(paid)) for fee, paid in fees] == [(1, 14), (2, 13), (1, 14)]
    assert (last.is_final, pending(bob)) == (True, 41)
    assert_ledger_is_true()


def test_the_provider_of_a_replaced_node_is_paid_too(alice: UUID, bob: UUID, held_job: UUID) -> None:
    carol = uuid4()
    charges = [LeaseCharge(uuid4(), bob, 500_000), LeaseCharge(uuid4(), carol, 0), LeaseCharge(uuid4(), carol, 300_000)]
    settled = settlement.settle_job(job_id=held_job, charges=charges, fee_bps=1000)
    assert (pending(bob), pending(carol)) == (450_000, 270_000)
    assert settled.shares.count() == 3  # also the one that earned nothing: the bill shows it
    assert_ledger_is_true()


def test_settling_twice_returns_the_first_and_moves_nothing(alice: UUID, bob: UUID, held_job: UUID) -> None:
    first = settlement.settle_job(job_id=held_job, charges=[LeaseCharge(uuid4(), bob, 100)], fee_bps=1000)
    again = settlement.settle_job(job_id=held_job, charges=[LeaseCharge(uuid4(), bob, 900_000)], fee_bps=0)
    assert again == first
    assert (pending(bob), available(alice)) == (90, 10 * DOLLAR - 100)


def test_a_job_never_costs_more_than_its_hold(alice: UUID, bob: UUID, held_job: UUID) -> None:
    with pytest.raises(ChargeAboveHold):
        settlement.settle_job(
            job_id=held_job, charges=[LeaseCharge(uuid4(), bob, HOLD), LeaseCharge(uuid4(), bob, 1)], fee_bps=1000
        )
    assert holds.is_open(held_job)
    assert not Settlement.objects.filter(job_id=held_job).exists()
    assert held(alice) == HOLD


@pytest.mark.parametrize(("fee_bps", "fee"), [(10_000, 1), (5_000, 0)])
def test_the_fee_of_one_unit_is_all_of_it_or_rounded_down(bob: UUID, held_job: UUID, fee_bps: int, fee: int) -> None:
    settled = settlement.settle_job(job_id=held_job, charges=[LeaseCharge(uuid4(), bob, 1)], fee_bps=fee_bps)
    assert (settled.fee, settled.paid) == (fee, 1 - fee)


def test_a_settlement_without_charges_can_be_contested_for_the_whole_window(held_job: UUID, settings: Any) -> None:
    settings.SOUK_CHALLENGE_SECONDS = 3600
    settled = settlement.settle_job(job_id=held_job, charges=[], fee_bps=1000)
    assert settled.challenge_until == settled.created_at + timedelta(hours=1)


def test_what_was_charged_before_is_not_below_zero(bob: UUID, held_job: UUID) -> None:
    with pytest.raises(ChargesInvalid):
        settlement.settle_job(job_id=held_job, charges=[LeaseCharge(uuid4(), bob, 1, before=-1)], fee_bps=0)


@pytest.mark.parametrize(
    ("charges", "fee_bps"), [([-1], 0), ([1], 10_001), ([1], -1)], ids=["negative", "fee above one", "negative fee"]
)
def test_charges_that_make_no_sense_are_refused(bob: UUID, held_job: UUID, charges: list[int], fee_bps: int) -> None:
    with pytest.raises(ChargesInvalid):
        settlement.settle_job(
            job_id=held_job, charges=[LeaseCharge(uuid4(), bob, amount) for amount in charges], fee_bps=fee_bps
        )


def test_a_lease_is_charged_once(bob: UUID, held_job: UUID) -> None:
    lease_id = uuid4()
    with pytest.raises(ChargesInvalid):
        settlement.settle_job(
            job_id=held_job, charges=[LeaseCharge(lease_id, bob, 1), LeaseCharge(lease_id, bob, 1)], fee_bps=0
        )


def test_a_job_without_a_hold_cannot_be_settled(db: None, job_id: UUID) -> None:
    with pytest.raises(HoldNotFound):
        settlement.settle_job(job_id=job_id, charges=[], fee_bps=1000)


def test_pay_becomes_spendable_when_the_challenge_window_is_over(
    alice: UUID, bob: UUID, held_job: UUID, settings: Any
) -> None:
    settings.SOUK_CHALLENGE_SECONDS = 3600
    settlement.settle_job(job_id=held_job, charges=[LeaseCharge(uuid4(), bob, DOLLAR)], fee_bps=1000)
    settlement.release_pending(clock.now() + timedelta(minutes=59))
    assert (pending(bob), spendable(bob)) == (900_000, 0)
    assert settlement.release_pending(clock.now() + timedelta(minutes=61)) == 1
    assert (pending(bob), spendable(bob)) == (0, 900_000)
    assert settlement.release_pending(clock.now() + timedelta(minutes=62)) == 0
    assert not SettlementShare.objects.filter(provider_id=bob, released_at=None).exists()
    assert_ledger_is_true()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hold=st.integers(min_value=1, max_value=10**15),
    cuts=st.lists(st.integers(min_value=0, max_value=10**15), max_size=4),
    fee_bps=st.integers(min_value=0, max_value=10_000),
)
def test_P08_parts_of_any_settlement_add_up_to_its_hold(db: None, hold: int, cuts: list[int], fee_bps: int) -> None:
    customer, job_id, providers = fund(uuid4(), hold), uuid4(), [uuid4() for _ in cuts]
    bounds = sorted(cut % (hold + 1) for cut in cuts)
    amounts = [after - before for before, after in zip([0, *bounds], bounds, strict=False)]
    fees_before = ledger.balance(None, AccountKind.FEE_REVENUE)
    holds.place_hold(owner_id=customer, job_id=job_id, amount=hold)
    charges = [LeaseCharge(uuid4(), who, amount) for who, amount in zip(providers, amounts, strict=True)]

    settled = settlement.settle_job(job_id=job_id, charges=charges, fee_bps=fee_bps)

    fee = ledger.balance(None, AccountKind.FEE_REVENUE) - fees_before
    paid = sum(pending(who) for who in providers)
    assert paid + fee + available(customer) == hold
    assert (paid, fee) == (settled.paid, settled.fee)
    assert held(customer) == 0  # the job is at its end
    assert settled.charged == sum(amounts) <= hold
    assert ledger.trial_balance()["USD"] == 0
