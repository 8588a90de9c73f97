"""Every pair of states of a hold, tried past the code: the database allows the edges of the table and no other."""

from __future__ import annotations

from itertools import product
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from billing.states import HOLD_MACHINE, HoldState
from marketplace.foundation.state_triggers import edges_in_database, edges_of, enforce_states
from marketplace.foundation.states import machine
from tests.integration.billing.scenes import past_the_triggers

EDGES = edges_of(HOLD_MACHINE)


def insert_hold(state: str) -> UUID:
    """A hold's row without its money: only the state matters here."""
    hold_id = uuid4()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO billing_hold"
            " (id, owner_id, job_id, asset_id, amount, state, created_at, row_digest, closed_at)"
            " VALUES (%s, %s, %s, 1, 1, %s, now(), '', CASE WHEN %s = 'open' THEN NULL ELSE now() END)",
            [hold_id, uuid4(), uuid4(), state, state],
        )
    return hold_id


def move(hold_id: UUID, state: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE billing_hold SET state = %s, closed_at = CASE WHEN %s = 'open' THEN NULL ELSE now() END"
            " WHERE id = %s",
            [state, state, hold_id],
        )


@pytest.mark.parametrize(("before", "after"), list(product(HoldState.values, HoldState.values)))
def test_a_hold_moves_along_the_edges_of_its_table_only(alice: UUID, before: str, after: str) -> None:
    with past_the_triggers("billing_hold"):
        hold_id = insert_hold(before)
    if before == after or (before, after) in EDGES:
        with transaction.atomic():
            move(hold_id, after)
            transaction.set_rollback(True)  # its money is not there: that is another guard's, at the commit
    else:
        with pytest.raises(IntegrityError, match=f"never goes from {before} to {after}"):
            move(hold_id, after)


@pytest.mark.parametrize("state", HoldState.values)
def test_a_hold_begins_open(alice: UUID, state: str) -> None:
    if state == HoldState.OPEN:
        with transaction.atomic():
            insert_hold(state)
            transaction.set_rollback(True)
    else:
        with pytest.raises(IntegrityError, match=f"does not begin as {state}"), transaction.atomic():
            insert_hold(state)


@pytest.mark.django_db
def test_the_edges_of_the_database_are_those_of_the_code() -> None:
    assert edges_in_database("billing_hold", HOLD_MACHINE) == EDGES


def test_a_name_that_could_end_a_string_makes_no_trigger() -> None:
    with pytest.raises(ValueError, match="cannot stand in a trigger"):
        enforce_states("billing_hold", machine("hold", {"open": ["a'b"]}))
