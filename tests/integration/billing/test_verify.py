"""Whoever changes the ledger behind its back is found, by row."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection

from billing.account_kinds import AccountKind
from billing.books import hash_chain, ledger
from billing.books import verify as verifier
from billing.books.hash_chain import GENESIS, chain_transfers
from billing.charging import holds, metering, settlement
from billing.charging.settlement import LeaseCharge
from billing.models import Account, DailyRoot, Transfer, UsageReceipt
from marketplace.foundation import clock
from tests.integration.billing.scenes import DOLLAR, Meter, assert_ledger_is_true, fund, past_the_triggers


@pytest.fixture
def history(alice: UUID, bob: UUID, job_id: UUID) -> list[Transfer]:
    """A deposit, a hold, its settlement; oldest first."""
    holds.place_hold(owner_id=alice, job_id=job_id, amount=4 * DOLLAR)
    settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, DOLLAR)], fee_bps=1000)
    return list(Transfer.objects.order_by("seq"))


def accept_three_receipts() -> None:
    meter = Meter()
    metering.accept_receipts(meter.terms, [meter.read(1000), meter.read(2000), meter.read(3000)], observed_ms=3000)


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


def test_the_report_counts_what_it_checked_and_says_how_far_it_is(
    history: list[Transfer], bob: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_three_receipts()
    chain_transfers()
    fund(bob)
    monkeypatch.setattr(verifier, "ROWS_PER_FETCH", 2)
    steps: list[tuple[str, int, int]] = []
    report = ledger.verify(lambda *step: steps.append(step))
    accounts, transfers = Account.objects.count(), Transfer.objects.count()
    assert (report.accounts, report.transfers, report.receipts) == (accounts, transfers, 3)
    assert (report.sealed, report.is_true, report.problems) == (transfers - 1, True, [])
    assert {totals.asset for totals in report.totals} == {"USD"}
    assert [step for step in steps if step[0] == "accounts"] == [
        ("accounts", done, accounts) for done in range(0, accounts, 2)
    ]
    assert [step for step in steps if step[0] == "transfers"] == [
        ("transfers", done, transfers) for done in range(0, transfers, 2)
    ]
    assert [step for step in steps if step[0] == "receipts"] == [("receipts", 0, 3), ("receipts", 2, 3)]
    tables = [step[1] for step in steps if step[0] == "tables"]
    assert tables == list(range(len(tables)))
    assert {step[2] for step in steps if step[0] == "tables"} == {len(tables)}


def test_of_many_problems_the_first_are_named(
    history: list[Transfer], bob: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_three_receipts()
    chain_transfers()
    for table, change in (
        ("billing_transfer", "external_ref = 'forged'"),
        ("billing_account", "owner_id = gen_random_uuid()"),
        ("billing_usagereceipt", "digest = repeat('0', 63) || seq"),
    ):
        with past_the_triggers(table) as cursor:
            where = "owner_id IS NOT NULL" if "owner_id" in change else "true"
            cursor.execute(f"UPDATE {table} SET {change} WHERE {where}")
    owned = Account.objects.exclude(owner_id=None).count()
    found = Counter(problem.check for problem in ledger.verify().problems)
    assert (found["hash_chain"], found["receipt"], found["name"]) == (len(history), 3, owned)
    for most in (1, 2):
        monkeypatch.setattr(verifier, "PROBLEMS_MAX", most)
        report = ledger.verify()
        found = Counter(problem.check for problem in report.problems)
        assert (found["hash_chain"], found["receipt"], found["name"]) == (most, most, most)
        assert not report.is_true
    assert [each.id for each in report.problems if each.check == "hash_chain"] == [str(row.pk) for row in history[:2]]


def test_a_sealed_transfer_behind_an_unsealed_one_is_named_with_it(history: list[Transfer]) -> None:
    chain_transfers()
    with past_the_triggers("billing_transfer") as cursor:
        cursor.execute("UPDATE billing_transfer SET hash = NULL, prev_hash = NULL WHERE id = %s", [history[1].pk])
    found = [each for each in ledger.verify().problems if each.check == "hash_chain"]
    assert [each.id for each in found] == [str(row.pk) for row in history[2:]]
    assert f"transfer {history[1].seq} before it is not" in found[0].message


def test_each_wrong_link_is_named_with_what_is_wrong(history: list[Transfer]) -> None:
    chain_transfers()
    with past_the_triggers("billing_transfer") as cursor:
        cursor.execute("UPDATE billing_transfer SET prev_hash = repeat('1', 64) WHERE id = %s", [history[0].pk])
        cursor.execute("UPDATE billing_transfer SET external_ref = 'forged' WHERE id = %s", [history[2].pk])
    found = [each for each in ledger.verify().problems if each.check == "hash_chain"]
    assert [each.id for each in found] == [str(history[0].pk), str(history[2].pk)]
    assert "does not follow the transfer before it" in found[0].message
    assert "does not say what it said" in found[1].message


def test_each_days_root_is_compared_with_its_own_transfers(
    history: list[Transfer], monkeypatch: pytest.MonkeyPatch
) -> None:
    today = datetime.combine(clock.now().astimezone(UTC).date(), datetime.min.time(), UTC)
    for days in (1, 2, 3):
        monkeypatch.setattr(clock, "now", lambda days=days: today + timedelta(days=days, minutes=1))
        chain_transfers()
        fund(uuid4())
    roots = list(DailyRoot.objects.order_by("last_seq"))
    assert [root.transfers for root in roots] == [len(history), 1, 1]
    assert_ledger_is_true()
    with past_the_triggers("billing_dailyroot") as cursor:
        cursor.execute("UPDATE billing_dailyroot SET root = repeat('0', 64) WHERE day = %s", [roots[1].day])
        cursor.execute("UPDATE billing_dailyroot SET first_seq = first_seq + 1 WHERE day = %s", [roots[0].day])
    assert problems("daily_root") == [str(roots[0].day), str(roots[1].day)]


def test_a_receipt_whose_signer_is_another_is_named(alice: UUID) -> None:
    meter = Meter()
    metering.accept_receipts(meter.terms, [meter.read(1000), meter.read(2000)], observed_ms=2000)
    rows = list(UsageReceipt.objects.order_by("seq"))
    with past_the_triggers("billing_usagereceipt") as cursor:
        cursor.execute("UPDATE billing_usagereceipt SET signer = %s WHERE id = %s", ["0x" + "ab" * 20, rows[0].pk])
        cursor.execute("UPDATE billing_usagereceipt SET signature = 'no signature' WHERE id = %s", [rows[1].pk])
    found = {each.id: each.message for each in ledger.verify().problems if each.check == "receipt"}
    assert set(found) == {str(row.pk) for row in rows}
    assert "its signature is not its signer's" in found[str(rows[0].pk)]
    assert "\n" not in found[str(rows[1].pk)]


def test_an_account_of_another_name_is_named(alice: UUID) -> None:
    account = Account.objects.get(owner_id=alice, kind=AccountKind.CUSTOMER_AVAILABLE)
    with past_the_triggers("billing_account") as cursor:
        cursor.execute("UPDATE billing_account SET owner_id = gen_random_uuid() WHERE id = %s", [account.pk])
    assert problems("name") == [str(account.pk)]


def test_plans_are_as_before_afterwards(alice: UUID) -> None:
    with connection.cursor() as cursor:
        ledger.verify()
        cursor.execute("SHOW enable_nestloop")
        assert cursor.fetchone() == ("on",)
