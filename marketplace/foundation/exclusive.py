"""One process at a time, and one failing row does not stop the others: for sweeps and batches."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connection

from marketplace.foundation.errors import StateConflict

log = logging.getLogger(__name__)


@contextmanager
def only_one(name: str) -> Iterator[bool]:
    """Yields True to the only holder of `name` in this database, False to all others; never waits.

    An advisory lock of the connection, so a killed process frees it by dying.
    """
    key = zlib.crc32(name.encode())
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [key])
        (is_mine,) = cursor.fetchone()
    try:
        yield is_mine
    finally:
        if is_mine:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [key])


@contextmanager
def unless_raced(sentence: str, **ids: Any) -> Iterator[None]:
    """As `log_failures`, for what is looked at anew in a moment anyway: a lost race is passed over, too."""
    try:
        with log_failures(sentence, **ids):
            yield
    except StateConflict as error:
        log.info("%s %s", sentence, error, extra=ids)


@contextmanager
def log_failures(sentence: str, **ids: Any) -> Iterator[None]:
    """Whatever goes wrong inside is logged with its traceback and stays inside; the next row has its turn.

    A lost race (StateConflict) and a database that is away (OperationalError) are the caller's to try again.
    """
    try:
        yield
    except (StateConflict, OperationalError):
        raise
    except Exception:
        log.exception(sentence, extra=ids)
