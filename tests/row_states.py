"""Rows put in a state for a test, along the edges that the database allows, without the events of a real move."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import connection, models

from marketplace.foundation.states import StateMachine

M = TypeVar("M", bound=models.Model)


def path_between(machine: StateMachine, before: str, after: str) -> list[str]:
    """The states to pass from `before` to `after` by the fewest edges: without the first, with the last."""
    paths = deque([[before]])
    seen = {before}
    while paths:
        path = paths.popleft()
        if path[-1] == after:
            return path[1:]
        following = machine.transitions[path[-1]] - seen
        seen |= following
        paths.extend([*path, state] for state in sorted(following))
    raise ValueError(f"a {machine.kind} never gets from {before} to {after}")


def put_in_state(rows: models.QuerySet[Any], state: str, **fields: Any) -> None:
    """Every one of these rows gets this state, and with it these fields."""
    state = str(state)
    by_state: dict[str, list[Any]] = {}
    for key, before in rows.values_list("pk", "state"):
        by_state.setdefault(before, []).append(key)
    for before, keys in by_state.items():
        chosen = rows.model._default_manager.filter(pk__in=keys)
        for step in path_between(rows.model.STATE_MACHINE, before, state):
            chosen.update(state=step)
        if fields:
            chosen.update(**fields)


def create_in_state(model: type[M], state: str, **fields: Any) -> M:
    """A new row that was moved from its first state to this one."""
    created = model._default_manager.create(**fields)
    put_in_state(model._default_manager.filter(pk=created.pk), state)
    created.state = str(state)  # type: ignore[attr-defined]
    return created


@contextmanager
def past_the_triggers(table: str) -> Iterator[Any]:
    """What only the table's owner can do: write rows that its triggers refuse."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        yield cursor
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
