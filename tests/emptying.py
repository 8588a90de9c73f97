"""What a test committed is gone after it, in the time that its own few rows take.

Django's flush truncates every table and makes all content types and permissions anew: with some hundred tables that is
a fifth of a second, for a test that wrote into five of them. Deleting costs what there is to delete.
"""

from __future__ import annotations

from functools import cache

from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.db import DEFAULT_DB_ALIAS, connection
from django.test import TransactionTestCase

_flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]

# What the code says, and flush would write again as it was.
KEPT = {ContentType._meta.db_table, Permission._meta.db_table}


def empty_databases(case: TransactionTestCase) -> None:
    """All rows of all tables are deleted, whatever guards them; who still writes is waited for.

    In place of TransactionTestCase's own, which is left to databases where we may not do without triggers. Sequences go
    on, as they do there.
    """
    assert tuple(case._databases_names(include_mirrors=False)) == (DEFAULT_DB_ALIAS,)  # type: ignore[attr-defined]
    if not _is_superuser():
        _flush(case)
        return
    with connection.cursor() as cursor:
        cursor.execute(_deletion())


@cache
def _is_superuser() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('is_superuser')::bool")
        return bool(cursor.fetchone()[0])


@cache
def _deletion() -> str:
    found = connection.introspection.django_table_names(only_existing=True, include_views=False)
    tables = [connection.ops.quote_name(name) for name in sorted(set(found) - KEPT)]
    # A replica fires no triggers: neither those that keep rows for ever nor those that check references, row by row.
    return "; ".join(
        [
            "BEGIN",
            "SET LOCAL session_replication_role = replica",
            f"LOCK TABLE {', '.join(tables)} IN SHARE ROW EXCLUSIVE MODE",
            *(f"DELETE FROM {table}" for table in tables),
            "COMMIT",
        ]
    )
