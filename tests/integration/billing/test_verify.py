"""Whoever changes the ledger behind its back is found, by row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books import hash_chain, ledger
from billing.books.hash_chain import GENESIS, chain_transfers
from billing.charging import holds, settlement
from billing.charging.settlement import LeaseCharge
from billing.models import Account, DailyRoot, Transfer
from marketplace.foundation import clock
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, fund, past_the_triggers


@pytest.fixture
def history(alice: UUID, bob: UUID, job_id: UUID) -> list[Transfer]:
    """A deposit, a hold, its settlement; oldest first."""
    holds.place_hold(owner_id=alice, job_id=job_id, amount=4 * DOLLAR)
    settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, DOLLAR)], fee_bps=1000)
    return list(Transfer.objects.order_by("seq"))


def problems(check: str) -> list[str]:
    return [problem.id for problem in ledger.verify().problems if problem.check == check]


def test_every_transfer_is_chained_to_the_one_before(history: list[Transfer]) -> None:
    assert chain_transfers() == len(history)
    assert chain_transfers() == 0
    rows = list(Transfer.objects.order_by("seq"))
    assert [row.prev_hash for row in rows] == [GENESIS, *(row.hash for row in rows[:-1])]
    report = ledger.verify()
    assert (report.is_true, report.sealed, report.head) == (True, len(rows), rows[-1].hash)


def test_later_seals_continue_the_chain_whatever_the_batch(
    history: list[Transfer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hash_chain, "TRANSFERS_PER_BATCH_MAX", 2)
    chain_transfers()
    fund(uuid4())
    assert chain_transfers() == 1
    assert ledger.verify().sealed == len(history) + 1
    assert_ledger_is_true()


def test_sealing_rolls_up_the_fee_account(history: list[Transfer]) -> None:
    chain_transfers()
    fees = Account.objects.get(kind=AccountKind.FEE_REVENUE)
    assert (fees.credits_posted, fees.rolled_seq) == (100_000, history[-1].seq)
    assert ledger.balance(None, AccountKind.FEE_REVENUE) == 100_000
    assert_ledger_is_true()


@pytest.mark.parametrize(
    "flip",
    [
        "amount = amount + 1",
        "code = 'correction'",
        "external_ref = 'wire 2'",
        "created_at = created_at + interval '1 microsecond'",
        "job_id = gen_random_uuid()",
        "group_id = gen_random_uuid()",
        "hash = repeat('0', 64)",
        "hash = left(hash, 63) || CASE right(hash, 1) WHEN '0' THEN '1' ELSE '0' END",
    ],
)
def test_a_flipped_byte_names_its_row(history: list[Transfer], flip: str) -> None:
    chain_transfers()
    victim = history[2]
    with past_the_triggers("billing_transfer") as cursor:
        cursor.execute(f"UPDATE billing_transfer SET {flip} WHERE id = %s", [victim.pk])
    assert problems("hash_chain")[0] == str(victim.pk)


def test_a_removed_transfer_is_missed_by_the_next_one(history: list[Transfer]) -> None:
    chain_transfers()
    with past_the_triggers("billing_transfer") as cursor:
        cursor.execute("DELETE FROM billing_transfer WHERE id = %s", [history[2].pk])
    assert problems("hash_chain") == [str(history[3].pk)]
    assert problems("sums")


def test_a_resealed_history_is_caught_by_the_days_root(
    history: list[Transfer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can write everything can also write a new chain; the root that was published does not fit it."""
    tomorrow = clock.now() + timedelta(days=1)
    monkeypatch.setattr(clock, "now", lambda: tomorrow)
    chain_transfers()
    [root] = DailyRoot.objects.all()
    assert (root.transfers, root.day) == (len(history), tomorrow.astimezone(UTC).date() - timedelta(days=1))
    assert_ledger_is_true()
    with past_the_triggers("billing_transfer") as cursor:
        cursor.execute("UPDATE billing_transfer SET external_ref = 'forged' WHERE id = %s", [history[0].pk])
        cursor.execute("UPDATE billing_transfer SET hash = NULL, prev_hash = NULL")
        chain_transfers()
    assert problems("hash_chain") == []
    assert problems("daily_root") == [str(root.day)]


def test_a_day_is_sealed_once_and_only_when_it_is_over(
    history: list[Transfer], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain_transfers()
    assert not DailyRoot.objects.exists()
    midnight = datetime.combine(clock.now().date() + timedelta(days=1), datetime.min.time(), UTC)
    for minutes in (1, 2):
        monkeypatch.setattr(clock, "now", lambda minutes=minutes: midnight + timedelta(minutes=minutes))
        fund(uuid4())  # already the next day's
        chain_transfers()
    [root] = DailyRoot.objects.all()
    assert root.last_seq == history[-1].seq
    assert_ledger_is_true()


def test_a_clock_that_goes_back_seals_no_earlier_day_and_stops_no_later_one(
    history: list[Transfer], monkeypatch: pytest.MonkeyPatch
) -> None:
    today = datetime.combine(clock.now().date(), datetime.min.time(), UTC)
    for days in (3, 1, 2, 4):
        monkeypatch.setattr(clock, "now", lambda days=days: today + timedelta(days=days, minutes=1))
        fund(uuid4())
        chain_transfers()
    assert [(root.day - today.date()).days for root in DailyRoot.objects.order_by("first_seq")] == [2, 3]


def test_a_sum_that_was_written_by_hand_names_its_account(history: list[Transfer], alice: UUID) -> None:
    account = Account.objects.get(owner_id=alice, kind=AccountKind.CUSTOMER_AVAILABLE)
    with past_the_triggers("billing_account") as cursor:
        cursor.execute("UPDATE billing_account SET credits_posted = credits_posted + 1 WHERE id = %s", [account.pk])
    assert problems("sums") == [str(account.pk)]
    assert problems("trial_balance") == ["USD"]
    assert ledger.trial_balance()["USD"] == 1


def test_a_hold_that_does_not_fit_its_account_is_found(alice: UUID, job_id: UUID) -> None:
    hold = holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    with past_the_triggers("billing_hold"):
        type(hold).objects.filter(pk=hold.pk).update(amount=2 * DOLLAR)
    assert problems("hold") == [str(hold.pk)]


def test_money_left_in_the_hold_of_an_ended_job_is_found(alice: UUID, job_id: UUID) -> None:
    hold = holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    with past_the_triggers("billing_hold"):
        type(hold).objects.filter(pk=hold.pk).update(state="expired", closed_at=clock.now())
    assert len(problems("hold")) == 1


def test_a_settlement_that_its_transfers_do_not_support_is_found(history: list[Transfer], job_id: UUID) -> None:
    with past_the_triggers("billing_settlement") as cursor:
        cursor.execute(
            "UPDATE billing_settlement SET charged = 5, fee = 5, paid = 0, refunded = held - 5 WHERE job_id = %s",
            [job_id],
        )
    assert len(problems("settlement")) == 1
