"""The SQL functions of `billing/sql/`: the verbs that many use at once, each in one round trip.

A function locks, checks, writes and returns its outcome in its first column. It refuses before it writes, so that no
savepoint is needed around it. A migration installs it from its file; a change of a file needs a migration with the
same line, and a test that compares the database with the files fails without one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from django.db import connection, migrations, models

FOLDER: Final = Path(__file__).parent / "sql"


def call(function: str, *arguments: Any) -> tuple[Any, ...]:
    """The one row that the function returns."""
    marks = ",".join(["%s"] * len(arguments))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {function}({marks})", arguments)  # noqa: S608 - our own functions only
        row: tuple[Any, ...] = cursor.fetchone()
    return row


def array(values: Iterable[UUID | int | str | None]) -> str:
    """An array of ids, whole numbers or plain words, as PostgreSQL reads it; of texts that anybody wrote: a list."""
    return "{" + ",".join("NULL" if value is None else str(value) for value in values) + "}"


def stored(instance: models.Model) -> Any:
    """Mark an instance as stored: a function has written its row."""
    instance._state.adding = False
    instance._state.db = connection.alias
    return instance


def install(name: str) -> migrations.RunSQL:
    """The migration step that makes or replaces what billing/sql/NAME.sql defines."""
    return migrations.RunSQL((FOLDER / f"{name}.sql").read_text(), migrations.RunSQL.noop)
