"""One flipped byte in any column of any row that may not change is found, and its row is named."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, connection, models, transaction

from billing.books import ledger
from billing.books.hash_chain import chain_transfers
from billing.charging import holds, metering, settlement
from billing.charging.settlement import LeaseCharge
from billing.errors import Equivocation
from billing.fiat import topups
from billing.models import (
    Account,
    DailyRoot,
    Deposit,
    Hold,
    ReceiptEvidence,
    Settlement,
    SettlementShare,
    TopUp,
    Transfer,
    UsageReceipt,
)
from marketplace.foundation import clock
from marketplace.foundation.event_seals import seal_events
from marketplace.foundation.models import Event, EventSeal
from tests.integration.billing.scenes import DOLLAR, Meter, past_the_triggers

IMMUTABLE: tuple[type[models.Model], ...] = (
    Transfer,
    Deposit,
    Hold,
    Settlement,
    SettlementShare,
    UsageReceipt,
    ReceiptEvidence,
    DailyRoot,
)
WITH_DIGESTS: tuple[type[models.Model], ...] = (*IMMUTABLE, TopUp, Event)
OF_AN_ACCOUNT = (
    "kind",
    "owner_id",
    "job_id",
    "asset_id",
    "debits_pending",
    "debits_posted",
    "credits_pending",
    "credits_posted",
)
COLUMNS = [(model, field.column) for model in WITH_DIGESTS for field in model._meta.concrete_fields]
COLUMNS += [(Account, column) for column in OF_AN_ACCOUNT]
FLIPS = {
    "uuid": "gen_random_uuid()",
    "numeric": "{0} + 1",
    "bigint": "{0} + 1000",
    "integer": "{0} + 1",
    "smallint": "{0} + 1",
    "boolean": "NOT {0}",
    "date": "{0} - 1",
    "text": "{0} || '.'",
    "jsonb": "jsonb_set({0}, '{{x}}', '1')",
    "timestamp with time zone": "coalesce({0}, now()) + interval '1 microsecond'",
    "character varying": "left({0}, greatest(length({0}) - 1, 0)) || CASE right({0}, 1) WHEN '1' THEN '2' ELSE '1' END",
}


@pytest.fixture
def history(alice: UUID, bob: UUID, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A top-up, a deposit, a settled job with its receipts and a contradiction, sealed with its day."""
    settings.SOUK_API_URL, settings.SOUK_BIND = "http://127.0.0.1:8000", "127.0.0.1"
    settings.ALLOWED_HOSTS, settings.SOUK_FAKE_MONEY = ["127.0.0.1"], True
    topups.pay_fake(topups.request_top_up(alice, 20 * DOLLAR, method=TopUp.Method.CHECKOUT, actor="alice").pk)
    meter = Meter()
    holds.place_hold(owner_id=alice, job_id=meter.job_id, amount=4 * DOLLAR)
    receipts = [meter.read(1000), meter.read(2000)]
    metering.accept_receipts(meter.terms, receipts, observed_ms=2000)
    meter.made.pop()
    with pytest.raises(Equivocation):
        metering.accept_receipts(meter.terms, [meter.sign(1500)], observed_ms=2000)
    settlement.settle_job(job_id=meter.job_id, charges=[LeaseCharge(meter.lease_id, bob, DOLLAR)], fee_bps=1000)
    tomorrow = clock.now() + timedelta(days=1)
    monkeypatch.setattr(clock, "now", lambda: tomorrow)
    chain_transfers()
    assert seal_events() > 0
    assert ledger.verify().problems == []


@pytest.fixture(autouse=True)
def no_constraints(history: None) -> Iterator[None]:
    """No constraint checks a byte that flips on the disk. All of it is rolled back with the test."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint"
            " WHERE contype IN ('c', 'f') AND conrelid::regclass::text LIKE 'billing\\_%'"
        )
        for table, name in cursor.fetchall():
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    yield


def flip(model: type[models.Model], column: str) -> set[str]:
    """Change one column of one row behind everything's back; the row's id before and after."""
    table, key = model._meta.db_table, model._meta.pk.column
    with past_the_triggers(table) as cursor:
        cursor.execute(
            "SELECT data_type FROM information_schema.columns WHERE table_name = %s AND column_name = %s",
            [table, column],
        )
        [kind] = cursor.fetchone()
        victim: Any = model._default_manager.order_by(key).first()
        cursor.execute(
            f"UPDATE {table} SET {column} = {FLIPS[kind].format(column)} WHERE {key} = %s RETURNING {key}",
            [victim.pk],
        )
        [after] = cursor.fetchone()
    return {str(victim.pk), str(after)}


@pytest.mark.parametrize(
    ("model", "column"), COLUMNS, ids=[f"{model._meta.model_name}.{column}" for model, column in COLUMNS]
)
def test_P05_a_flipped_column_names_its_row(model: type[models.Model], column: str) -> None:
    ids = flip(model, column)
    problems = ledger.verify().problems
    assert {problem.id for problem in problems} & ids, problems


@pytest.mark.parametrize("model", IMMUTABLE, ids=lambda model: model._meta.model_name)
def test_P05_no_row_can_be_deleted(model: type[models.Model]) -> None:
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {model._meta.db_table}")


def test_P05_a_receipt_that_was_rewritten_whole_is_caught_by_its_signature() -> None:
    """The digests can be recomputed by whoever can write everything; the agent's signature cannot."""
    row = UsageReceipt.objects.order_by("seq").first()
    assert row is not None
    with past_the_triggers("billing_usagereceipt") as cursor:
        cursor.execute("UPDATE billing_usagereceipt SET billable_ms = billable_ms + 1 WHERE id = %s", [row.pk])
        cursor.execute("UPDATE billing_usagereceipt r SET row_digest = billing_digest(r)")
    assert [problem.id for problem in ledger.verify().problems] == [str(row.pk)]


INSERT_EVENT = """
    INSERT INTO foundation_event (id, subject_kind, subject_id, from_state, to_state, reason, actor, data, created_at)
    SELECT 0, subject_kind, subject_id, '', to_state, '', actor, data, created_at FROM foundation_event WHERE id = %s
"""
REWRITE_EVENT = "UPDATE foundation_event SET reason = 'budget' WHERE id = %s"
REMOVE_EVENT = "DELETE FROM foundation_event WHERE id = %s"


@pytest.mark.parametrize("statement", [REWRITE_EVENT, REMOVE_EVENT, INSERT_EVENT], ids=["rewrite", "remove", "insert"])
def test_P05_an_event_changed_with_its_digest_breaks_the_chain(statement: str) -> None:
    """Whoever can write everything recomputes the digests; the chain over them remains."""
    first = Event.objects.order_by("pk").values_list("pk", flat=True)[0]
    with connection.cursor() as cursor:
        cursor.execute(statement, [first])
        cursor.execute("UPDATE foundation_event e SET row_digest = foundation_event_digest(e)")
    assert {problem.check for problem in ledger.verify().problems} >= {"event_chain"}


def test_P05_a_seal_that_was_made_anew_is_named() -> None:
    EventSeal.objects.update(events=1)
    seal = EventSeal.objects.get()
    assert (seal.last_id, "event_chain") in {(int(p.id), p.check) for p in ledger.verify().problems if p.id.isdigit()}


@pytest.mark.parametrize("change", ["amount = amount + 1", "owner_id = gen_random_uuid()", "fee = 5", "tax = 5"])
def test_P05_a_top_up_rewritten_with_its_digest_is_named(change: str) -> None:
    """The trigger writes the digest anew for whoever may write the row; deposit and event say otherwise."""
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE billing_topup SET {change}")
    top_up = TopUp.objects.get()
    assert [(p.check, p.id) for p in ledger.verify().problems] == [("top_up", str(top_up.pk))]


def test_P05_a_top_up_that_nobody_paid_is_named() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_topup DISABLE TRIGGER USER")
        cursor.execute(
            "INSERT INTO billing_topup SELECT (jsonb_populate_record(t, jsonb_build_object('id', gen_random_uuid()))).*"
            " FROM billing_topup t"
        )
        cursor.execute("UPDATE billing_topup t SET row_digest = billing_digest(t)")
        cursor.execute("ALTER TABLE billing_topup ENABLE TRIGGER USER")
    [problem] = ledger.verify().problems
    assert (problem.check, "no event does" in problem.message) == ("top_up", True)


def test_P05_an_event_with_a_sum_that_is_no_number_is_named_and_hides_no_other_row() -> None:
    top_up = TopUp.objects.get()
    with connection.cursor() as cursor:
        cursor.execute("""UPDATE foundation_event SET data = data || '{"paid": "much"}' WHERE to_state = 'succeeded'""")
    assert ("top_up", str(top_up.pk)) in {(p.check, p.id) for p in ledger.verify().problems}


def test_P05_a_deposit_of_another_rail_with_the_same_reference_vouches_for_no_top_up() -> None:
    top_up = TopUp.objects.get()
    with past_the_triggers("billing_deposit") as cursor:
        cursor.execute("UPDATE billing_deposit SET rail = 'operator'")
        cursor.execute("UPDATE billing_deposit r SET row_digest = billing_digest(r)")
    assert ("top_up", str(top_up.pk)) in {(p.check, p.id) for p in ledger.verify().problems}


def test_progress_is_reported_while_it_verifies() -> None:
    checked: list[str] = []
    ledger.verify(lambda what, done, of: checked.append(what))
    assert set(checked) == {"tables", "accounts", "transfers", "receipts"}
