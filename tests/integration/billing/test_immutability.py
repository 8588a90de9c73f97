"""What was posted stays posted: the database refuses every change, by any role."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.db import IntegrityError, connection, transaction

from billing.books.hash_chain import chain_transfers
from billing.charging import metering
from billing.models import Account, Deposit, Transfer
from tests.integration.billing.scenes import Meter, assert_ledger_is_true


@pytest.mark.parametrize(
    "change",
    [
        {"amount": 1},
        {"code": "correction"},
        {"job_id": None, "external_ref": "another"},
        {"seq": 10**12},
        {"hash": "0" * 64, "prev_hash": "0" * 64, "amount": 1},
    ],
    ids=",".join,
)
def test_P05_no_column_of_a_transfer_can_be_updated(alice: UUID, change: dict[str, object]) -> None:
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
        Transfer.objects.filter(deposit__owner_id=alice).update(**change)


def test_P05_no_transfer_can_be_deleted(alice: UUID) -> None:
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM billing_transfer")


def test_P05_the_transfers_cannot_be_truncated(alice: UUID) -> None:
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic(), connection.cursor() as cursor:
        # The test database has this one trigger off, so that it can be emptied between tests.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE billing_transfer ENABLE TRIGGER transfer_never_truncated")
        cursor.execute("TRUNCATE billing_transfer CASCADE")


def test_P05_a_seal_is_written_once(alice: UUID) -> None:
    chain_transfers()
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
        Transfer.objects.filter(deposit__owner_id=alice).update(hash="f" * 64)
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
        Transfer.objects.filter(deposit__owner_id=alice).update(hash=None, prev_hash=None)


@pytest.mark.parametrize(
    "change", [{"credits_posted": 10**12}, {"debits_pending": 1}, {"kind": "rounding"}, {"is_summed": False}], ids=str
)
def test_P05_the_sums_and_the_kind_of_an_account_cannot_be_written(alice: UUID, change: dict[str, object]) -> None:
    with pytest.raises(IntegrityError, match="written by its transfers only"), transaction.atomic():
        Account.objects.filter(owner_id=alice).update(**change)


def test_P05_no_account_can_be_deleted(alice: UUID) -> None:
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM billing_account WHERE owner_id = %s", [alice])


def test_P05_deposits_and_receipts_stay_as_they_are(alice: UUID) -> None:
    meter = Meter()
    metering.accept_receipts(meter.terms, [meter.read(1000)], observed_ms=1000)
    for table in ("billing_deposit", "billing_usagereceipt"):
        for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET id = id"):
            with pytest.raises(IntegrityError, match="immutable"), transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(statement)
    assert Deposit.objects.filter(owner_id=alice).exists()
    assert_ledger_is_true()
