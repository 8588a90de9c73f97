"""A value that the database refuses now, in a row of it: stored before there was a constraint, or by hand."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from django.db import connection
from django.db.models import Model

YEAR_10000: Final = "10000-01-01 13:59:59+00"  # 9999-12-31T23:59:59-14:00: PostgreSQL knows it, Python does not

_CHECKS = """
    SELECT conname FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY (conkey)
    WHERE conrelid = %s::regclass AND contype = 'c' AND attname = %s
"""


def store(model: type[Model], pk: UUID, column: str, value: str) -> None:
    """Past the column's CHECK constraints, which are gone until the test's transaction is rolled back."""
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # else PostgreSQL refuses to alter a table with new rows
        cursor.execute(_CHECKS, [table, column])
        for (name,) in cursor.fetchall():
            cursor.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
        cursor.execute(f"UPDATE {table} SET {column} = %s WHERE id = %s", [value, pk])
        assert cursor.rowcount == 1
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
