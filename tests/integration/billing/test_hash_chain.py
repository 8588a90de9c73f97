"""What the chain and the days' roots cover, to the transfer and the microsecond."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from threading import Event, Thread
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from billing.account_kinds import AccountKind
from billing.books import hash_chain, ledger
from billing.books.chart_of_accounts import open_account
from billing.books.hash_chain import CHAIN_LOCK, GENESIS, chain_transfers, merkle_root, transfer_hash, write_daily_root
from billing.books.ledger import NewTransfer
from billing.models import DailyRoot, Transfer
from billing.transfer_codes import TransferCode, TransferMode
from marketplace.foundation import clock
from tests.integration.billing.scenes import assert_ledger_is_true, fund


@contextmanager
def writer_elsewhere() -> Iterator[None]:
    """Another process extends the chain meanwhile."""
    locked, over = Event(), Event()

    def hold_lock() -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [CHAIN_LOCK])
                locked.set()
                over.wait(30)
        finally:
            connection.close()

    thread = Thread(target=hold_lock)
    thread.start()
    assert locked.wait(30)
    try:
        yield
    finally:
        over.set()
        thread.join(30)


def at(monkeypatch: pytest.MonkeyPatch, now: datetime) -> None:
    monkeypatch.setattr(clock, "now", lambda: now)


def today() -> datetime:
    return datetime.combine(clock.now().astimezone(UTC).date(), datetime.min.time(), UTC)


def test_a_hash_covers_every_field_in_the_order_that_is_written_down(alice: UUID, bob: UUID) -> None:
    debit, credit = (open_account(AccountKind.CUSTOMER_AVAILABLE, owner) for owner in (alice, bob))
    new = NewTransfer(debit, credit, 5, TransferCode.CORRECTION, job_id=uuid4(), external_ref="a\nb")
    [pending] = ledger.post([NewTransfer(**{**vars(new), "mode": TransferMode.PENDING})])
    [row] = ledger.post([NewTransfer(**{**vars(new), "mode": TransferMode.POST, "pending_id": pending.pk})])
    fund(bob)
    bare = Transfer.objects.order_by("seq").last()
    assert bare is not None
    assert (bare.pending_id, bare.job_id) == (None, None)
    for each in (pending, row, bare):
        times = [
            moment.astimezone(UTC).isoformat(timespec="microseconds") for moment in (each.effective_at, each.created_at)
        ]
        legs = [each.asset_id, each.debit_id, each.credit_id, each.amount, each.mode, each.pending_id or "", each.code]
        fields = ["souk-transfer-v1", GENESIS, each.seq, each.pk, each.group_id, *legs, each.job_id or "", *times]
        text = "\n".join(map(str, [*fields, each.external_ref]))
        assert transfer_hash(each, GENESIS) == sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("batches", "rows", "calls"), [(200, 2, [6, 0]), (200, 3, [6, 0]), (1, 4, [4, 2, 0]), (2, 2, [4, 2, 0])]
)
def test_a_call_chains_what_its_batches_hold(
    alice: UUID, monkeypatch: pytest.MonkeyPatch, batches: int, rows: int, calls: list[int]
) -> None:
    monkeypatch.setattr(hash_chain, "TRANSFERS_PER_BATCH_MAX", rows)
    monkeypatch.setattr(hash_chain, "BATCHES_PER_CALL_MAX", batches)
    for _ in range(5):
        fund(uuid4())
    assert Transfer.objects.count() == 6
    assert [chain_transfers() for _ in calls] == calls
    assert_ledger_is_true()


def test_nothing_is_chained_where_there_is_nothing(db: None) -> None:
    assert chain_transfers() == 0
    assert write_daily_root() is None


@pytest.mark.django_db(transaction=True)
def test_one_writer_at_a_time_extends_the_chain(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fund(uuid4())
    with writer_elsewhere():
        assert chain_transfers() == 0
    assert chain_transfers() == 1
    at(monkeypatch, clock.now() + timedelta(days=1))
    with writer_elsewhere():
        assert write_daily_root() is None
        assert not DailyRoot.objects.exists()
    assert write_daily_root() is not None


def test_a_day_ends_at_midnight_to_the_microsecond(alice: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    midnight = today() + timedelta(days=1)
    at(monkeypatch, midnight - timedelta(microseconds=1))
    fund(uuid4())
    at(monkeypatch, midnight)
    fund(uuid4())
    chain_transfers()
    rows = list(Transfer.objects.order_by("seq"))
    [root] = DailyRoot.objects.all()
    assert root.day == (midnight - timedelta(days=1)).date()
    assert (root.first_seq, root.last_seq, root.transfers) == (rows[0].seq, rows[1].seq, 2)
    assert root.root == merkle_root([str(row.hash) for row in rows[:2]])
    assert write_daily_root() is None

    at(monkeypatch, midnight - timedelta(seconds=1))
    fund(uuid4())  # it was drawn before midnight, and committed after the day's root
    at(monkeypatch, midnight + timedelta(seconds=1))
    chain_transfers()
    assert DailyRoot.objects.count() == 1
    rows = list(Transfer.objects.order_by("seq"))
    at(monkeypatch, midnight + timedelta(days=1))
    fund(uuid4())
    second = write_daily_root()
    assert second is not None
    assert (second.day, second.first_seq, second.last_seq) == (midnight.date(), rows[2].seq, rows[3].seq)
    assert second.root == merkle_root([str(row.hash) for row in rows[2:4]])
    assert_ledger_is_true()


def test_the_first_transfer_of_all_is_of_its_day(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_serial_sequence('billing_transfer', 'seq')")
        cursor.execute(f"ALTER SEQUENCE {cursor.fetchone()[0]} RESTART")  # undone with the test
    fund(uuid4())
    assert chain_transfers() == 1
    [first] = Transfer.objects.all()
    assert first.seq == 1
    assert not DailyRoot.objects.exists()
    at(monkeypatch, today() + timedelta(days=1))
    root = write_daily_root()
    assert root is not None
    assert (root.first_seq, root.last_seq) == (1, 1)


def test_a_day_without_transfers_has_no_root(alice: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    chain_transfers()
    at(monkeypatch, today() + timedelta(days=1, minutes=1))
    assert write_daily_root() is not None
    at(monkeypatch, today() + timedelta(days=1, minutes=1))
    assert write_daily_root() is None
    assert DailyRoot.objects.count() == 1
