"""Real connections that want the same money at the same moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from billing.account_kinds import AccountKind
from billing.books import deposits, ledger
from billing.books.chart_of_accounts import open_account
from billing.books.hash_chain import chain_transfers
from billing.charging import holds, metering, settlement
from billing.charging.settlement import LeaseCharge
from billing.errors import Equivocation, InsufficientFunds
from billing.models import Account, Deposit, Hold, ReceiptEvidence, Settlement, Transfer, UsageReceipt
from billing.transfer_codes import TransferCode
from tests.integration.billing.scenes import DOLLAR, Meter, assert_ledger_is_true, available, fund, held, race

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alice(transactional_db: None) -> UUID:
    return fund(uuid4())


@pytest.fixture(autouse=True)
def true_at_the_end(transactional_db: None) -> Iterator[None]:
    yield
    assert_ledger_is_true()


def test_P03_of_a_hundred_holds_on_a_balance_of_ten_exactly_ten_are_placed(alice: UUID) -> None:
    place = partial(holds.place_hold, owner_id=alice, amount=DOLLAR)
    outcomes = race([partial(place, job_id=uuid4()) for _ in range(100)])
    assert sum(isinstance(outcome, Hold) for outcome in outcomes) == 10
    assert sum(isinstance(outcome, InsufficientFunds) for outcome in outcomes) == 90
    assert (available(alice), held(alice)) == (0, 10 * DOLLAR)


def test_one_hold_placed_by_many_at_once_is_one_hold(alice: UUID, job_id: UUID) -> None:
    place = partial(holds.place_hold, owner_id=alice, job_id=job_id, amount=DOLLAR)
    outcomes = race([place] * 8)
    assert len({outcome.pk for outcome in outcomes if isinstance(outcome, Hold)}) == 1, outcomes
    assert held(alice) == DOLLAR


def test_a_job_settled_by_two_at_once_is_settled_once(alice: UUID, bob: UUID, job_id: UUID) -> None:
    holds.place_hold(owner_id=alice, job_id=job_id, amount=4 * DOLLAR)
    charges = [LeaseCharge(uuid4(), bob, DOLLAR)]
    settle = partial(settlement.settle_job, job_id=job_id, charges=charges, fee_bps=1000)
    outcomes = race([settle] * 2)
    assert all(isinstance(outcome, Settlement) for outcome in outcomes), outcomes
    assert Settlement.objects.filter(job_id=job_id).count() == 1
    assert ledger.balance(bob, AccountKind.PROVIDER_PENDING) == 900_000
    assert available(alice) == 9 * DOLLAR


def test_the_second_settler_waits_for_the_first_to_commit(alice: UUID, bob: UUID, job_id: UUID) -> None:
    """The same race with the order forced: the first has settled and not committed when the second comes."""
    holds.place_hold(owner_id=alice, job_id=job_id, amount=4 * DOLLAR)
    settled, may_commit = Event(), Event()

    def first() -> Settlement:
        try:
            with transaction.atomic():
                row = settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, 100)], fee_bps=0)
                settled.set()
                assert may_commit.wait(timeout=20)
                return row
        finally:
            connection.close()

    def second() -> Settlement:
        try:
            assert settled.wait(timeout=20)
            return settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, 999)], fee_bps=0)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.submit(first), pool.submit(second)
        assert settled.wait(timeout=20)
        time.sleep(0.3)
        assert not two.done()
        may_commit.set()
        assert one.result(timeout=20) == two.result(timeout=20)
    assert ledger.balance(bob, AccountKind.PROVIDER_PENDING) == 100


def test_settling_and_releasing_at_once_moves_the_money_once(alice: UUID, bob: UUID) -> None:
    for _ in range(5):
        job_id, before = uuid4(), available(alice)
        holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
        charges = [LeaseCharge(uuid4(), bob, 100)]
        verbs: list[Callable[[], object]] = [
            partial(settlement.settle_job, job_id=job_id, charges=charges, fee_bps=0),
            partial(holds.release_hold, job_id),
        ]
        race(verbs)
        is_settled = Settlement.objects.filter(job_id=job_id).exists()
        assert available(alice) == before - (100 if is_settled else 0)


def test_transfers_in_both_directions_never_deadlock(alice: UUID, bob: UUID) -> None:
    fund(bob)
    wallets = [open_account(AccountKind.CUSTOMER_AVAILABLE, who) for who in (alice, bob)]

    def back_and_forth(turn: int) -> None:
        for step in range(15):
            one, other = wallets if (turn + step) % 2 else reversed(wallets)
            ledger.post([ledger.NewTransfer(one, other, 1 + step, TransferCode.CORRECTION)])

    assert race([partial(back_and_forth, turn) for turn in range(8)]) == [None] * 8
    assert available(alice) + available(bob) == 20 * DOLLAR
    assert Transfer.objects.filter(code=TransferCode.CORRECTION).count() == 8 * 15


def test_settlements_do_not_wait_for_the_fee_account(alice: UUID, bob: UUID) -> None:
    """Two transactions hold a settlement each, open at the same time: with a live sum the second would have to wait."""
    dave = fund(uuid4())
    open_account(AccountKind.FEE_REVENUE)
    both_settled = [Event(), Event()]

    def settle(me: int, customer: UUID, provider: UUID) -> bool:
        job_id = uuid4()
        try:
            holds.place_hold(owner_id=customer, job_id=job_id, amount=DOLLAR)
            with transaction.atomic():
                settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), provider, 1000)], fee_bps=1000)
                both_settled[me].set()
                return both_settled[1 - me].wait(timeout=10)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        outcomes = [pool.submit(settle, 0, alice, bob), pool.submit(settle, 1, dave, uuid4())]
        assert [outcome.result(timeout=20) for outcome in outcomes] == [True, True]
    assert ledger.balance(None, AccountKind.FEE_REVENUE) == 200


def test_one_reference_credited_by_many_at_once_is_one_deposit(alice: UUID) -> None:
    credit = partial(deposits.credit, alice, DOLLAR, reference="wire 1", actor="operator@example.org")
    outcomes = race([credit] * 8)
    assert len({outcome.pk for outcome in outcomes if isinstance(outcome, Transfer)}) == 1, outcomes
    assert available(alice) == 11 * DOLLAR
    assert Deposit.objects.filter(reference="wire 1").count() == 1


def test_an_account_opened_by_many_at_once_is_one_account() -> None:
    outcomes = race([partial(open_account, AccountKind.PROVIDER_PENDING, uuid4())] * 8)
    assert len({outcome.pk for outcome in outcomes if isinstance(outcome, Account)}) == 1, outcomes


def test_pay_is_released_once_by_two_at_once(alice: UUID, bob: UUID) -> None:
    for _ in range(4):
        job_id = uuid4()
        holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
        settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, 1000)], fee_bps=0)
    released = race([settlement.release_pending] * 4)
    assert sum(count for count in released if isinstance(count, int)) == 4, released
    assert ledger.balance(bob, AccountKind.PROVIDER_AVAILABLE) == 4000
    assert ledger.balance(bob, AccountKind.PROVIDER_PENDING) == 0


def test_who_releases_second_leaves_alone_what_the_first_is_releasing(alice: UUID, bob: UUID, settings: Any) -> None:
    """The order forced; and Bob has more pending, so that nothing but the lock keeps him from being paid twice."""
    for challenge_seconds in (0, 3600):
        settings.SOUK_CHALLENGE_SECONDS = challenge_seconds
        job_id = uuid4()
        holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
        settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, 1000)], fee_bps=0)
    with transaction.atomic():
        assert settlement.release_pending() == 1
        assert race([settlement.release_pending]) == [0]
    assert ledger.balance(bob, AccountKind.PROVIDER_AVAILABLE) == 1000
    assert ledger.balance(bob, AccountKind.PROVIDER_PENDING) == 1000


def test_receipts_appended_twice_at_once_are_stored_once() -> None:
    meter = Meter()
    receipts = [meter.read(ms) for ms in (1000, 2000, 3000)]
    append = partial(metering.accept_receipts, meter.terms, receipts, observed_ms=3000)
    assert race([append] * 6) == [3] * 6
    assert UsageReceipt.objects.of_lease(meter.lease_id).count() == 3


def test_of_two_contradicting_receipts_at_once_one_is_accepted_and_both_are_kept() -> None:
    meter = Meter()
    lies = [meter.sign(ms) for ms in (1000, 2000)]
    outcomes = race([partial(metering.accept_receipts, meter.terms, [lie], observed_ms=3000) for lie in lies])
    assert [type(outcome) for outcome in outcomes if not isinstance(outcome, int)] == [Equivocation]
    assert UsageReceipt.objects.of_lease(meter.lease_id).count() == 1
    assert ReceiptEvidence.objects.filter(lease_id=meter.lease_id).count() == 1


def test_the_seal_waits_for_a_transfer_whose_number_was_drawn_but_not_committed(alice: UUID, bob: UUID) -> None:
    """Else a lower number would appear behind the sealed ones, and the chain would not follow the numbers."""
    drawn, may_commit = Event(), Event()

    def slow() -> None:
        try:
            with transaction.atomic():
                holds.place_hold(owner_id=alice, job_id=uuid4(), amount=DOLLAR)
                drawn.set()
                assert may_commit.wait(timeout=20)
        finally:
            connection.close()

    def seal() -> int:
        try:
            return chain_transfers()
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        writer = pool.submit(slow)
        assert drawn.wait(timeout=20)
        fund(bob)  # a higher number, committed first
        sealer = pool.submit(seal)
        time.sleep(0.3)
        assert not sealer.done()
        may_commit.set()
        writer.result(timeout=20)
        assert sealer.result(timeout=20) == Transfer.objects.count() == 3
