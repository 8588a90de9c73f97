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
from billing.models import (
    Account,
    DailyRoot,
    Deposit,
    Hold,
    ReceiptEvidence,
    Settlement,
    SettlementShare,
    Transfer,
    UsageReceipt,
)
from marketplace.foundation import clock
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
COLUMNS = [(model, field.column) for model in IMMUTABLE for field in model._meta.concrete_fields]
COLUMNS += [(Account, column) for column in OF_AN_ACCOUNT]
FLIPS = {
    "uuid": "gen_random_uuid()",
    "numeric": "{0} + 1",
    "bigint": "{0} + 1000",
    "integer": "{0} + 1",
    "smallint": "{0} + 1",
    "boolean": "NOT {0}",
    "date": "{0} - 1",
    "jsonb": "jsonb_set({0}, '{{x}}', '1')",
    "timestamp with time zone": "coalesce({0}, now()) + interval '1 microsecond'",
    "character varying": "left({0}, greatest(length({0}) - 1, 0)) || CASE right({0}, 1) WHEN '1' THEN '2' ELSE '1' END",
}


@pytest.fixture
def history(alice: UUID, bob: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deposit, a settled job with its receipts and a contradiction, sealed with its day."""
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


def test_progress_is_reported_while_it_verifies() -> None:
    checked: list[str] = []
    ledger.verify(lambda what, done, of: checked.append(what))
    assert set(checked) == {"tables", "accounts", "transfers", "receipts"}
