"""`souk ledger verify` holds the contract's events, holds and leases against the transfers: a flipped byte is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from billing.books import ledger
from billing.chain import escrow
from billing.chain.devchain import development
from billing.models import ChainEvent
from tests.integration.billing.chain.escrows import delegate, open_job, receipt_of
from tests.integration.billing.chain.town import TOKEN, Town, devchain_town
from tests.integration.billing.scenes import past_the_triggers

FLIPS = [
    ("escrowhold", "amount = amount + 1", "escrow_hold"),
    ("escrowhold", "settled = settled - 1", "escrow_hold"),
    ("escrowlease", "paid = paid + 1", "escrow_hold"),
    ("escrowlease", "fee = fee + 1", "escrow_hold"),
    ("escrowlease", "refunded = refunded + 1", "escrow_hold"),
    ("escrowlease", "pending = pending - 1, paid = paid + 1", "escrow_pending"),
    ("chainevent", """arguments = jsonb_set(arguments, '{amount}', '"7"')""", "event"),
    ("chainevent", "log_index = log_index + 1", "event"),
    ("chainevent", "processed_at = NULL", "event"),
]


@pytest.fixture
def waiting(db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Town, UUID]]:
    """A job whose lease waits in its window, and one that is over."""
    terms = development.terms
    monkeypatch.setattr(development, "terms", lambda *given: dataclasses.replace(terms(*given), challenge_seconds=3600))
    with devchain_town(settings) as town:
        town.deposit("Alice", 50 * TOKEN)
        delegate(town)
        job_id, over = open_job(town), open_job(town)
        escrow.settle_lease(receipt_of(town, job_id, uuid4(), 1, 100_000))
        escrow.end_hold(over)
        town.call("Alice", "withdraw", TOKEN)
        town.follow(3)
        yield town, job_id


def test_every_flipped_byte_of_the_mirror_is_found(waiting: tuple[Town, UUID]) -> None:
    assert ledger.verify().problems == []
    for table, change, check in FLIPS:
        which = f"id = {_first(table)}"
        with past_the_triggers(f"billing_{table}") as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("SAVEPOINT flip")
            cursor.execute(f"UPDATE billing_{table} SET {change} WHERE {which}")
            found = {problem.check for problem in ledger.verify().problems}
            cursor.execute("ROLLBACK TO SAVEPOINT flip")
        assert check in found, (table, change, found)
    assert ledger.verify().problems == []


def test_a_hold_whose_end_moved_nothing_is_found(waiting: tuple[Town, UUID]) -> None:
    _, job_id = waiting
    with past_the_triggers("billing_escrowhold") as cursor:
        cursor.execute("UPDATE billing_escrowhold SET state = 'closed' WHERE id = %s", [job_id])
    [problem] = ledger.verify().problems
    assert (problem.check, problem.id) == ("escrow_hold", str(job_id))
    assert "closed with 1000000 of 10000000 settled; its account has 9000000" in problem.message


def _first(table: str) -> str:
    """The row of the table that is flipped: of events one with tokens, of holds the open one."""
    if table == "chainevent":
        return str(ChainEvent.objects.get(name="Withdrawn").pk)
    where = "WHERE state = 'open'" if table == "escrowhold" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id FROM billing_{table} {where} ORDER BY id LIMIT 1")
        return f"'{cursor.fetchone()[0]}'"
