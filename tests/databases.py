"""The test database of each worker is a copy of one that the first of them migrated: all migrations take two seconds.

pytest's own process    names the copied database in the environment, and removes it at the end; one that it found named
                        there belongs to who named it
the first worker        makes it, while the others wait for it
every worker            `CREATE DATABASE test_souk_gw1 TEMPLATE ...`; `migrate` finds nothing to do there
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

import psycopg
from django.core.management import call_command
from django.db import connection
from psycopg import sql

if TYPE_CHECKING:
    from django.db.backends.postgresql.base import DatabaseWrapper

NAME_VARIABLE: Final = "SOUK_TESTS_TEMPLATE"


_named: list[str] = []


def name_template() -> None:
    """From now on workers that start copy a database; to be called before the first one does."""
    _named.append(f"souk_tests_{uuid4().hex[:12]}")
    os.environ[NAME_VARIABLE] = _named[0]


def copy_template() -> None:
    """This process's test database will be a copy; without a name, as with one process alone, all migrations run."""
    name = os.environ.get(NAME_VARIABLE)
    if not name:
        return
    with (Path(tempfile.gettempdir()) / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _exists(name):
            _make(name)
    connection.settings_dict["TEST"]["TEMPLATE"] = name


def remove_template() -> None:
    """After the last worker."""
    if not _named:
        return
    name = _named.pop()
    os.environ.pop(NAME_VARIABLE)
    (Path(tempfile.gettempdir()) / f"{name}.lock").unlink(missing_ok=True)
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as own:  # Django's is blocked outside of tests
        for each in (name, _unfinished(name)):
            own.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(each)))


def _unfinished(name: str) -> str:
    return f"{name}_unfinished"


def _exists(name: str) -> bool:
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT FROM pg_database WHERE datname = %s", [name])
        return bool(cursor.fetchone() is not None)


def _make(name: str) -> None:
    """Migrate under another name, then rename: a database with this name is complete, even if a worker was killed."""
    unfinished, own = _unfinished(name), connection.settings_dict["NAME"]
    with connection._nodb_cursor() as cursor:
        cursor.execute(f'DROP DATABASE IF EXISTS "{unfinished}"')
        cursor.execute(f'CREATE DATABASE "{unfinished}"')
    connection.settings_dict["NAME"] = unfinished
    try:
        call_command("migrate", verbosity=0, interactive=False, run_syncdb=True)
    finally:
        connection.close()
        cast("DatabaseWrapper", connection).close_pool()  # nobody may be connected to what is copied
        connection.settings_dict["NAME"] = own
    with connection._nodb_cursor() as cursor:
        cursor.execute(f'ALTER DATABASE "{unfinished}" RENAME TO "{name}"')
