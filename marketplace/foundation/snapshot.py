"""Everything that is read inside is of one moment, whatever others commit meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def one_moment(*, is_read_only: bool) -> Iterator[None]:
    """A transaction with a snapshot of its own; inside an outer one (as in tests) what that one sees."""
    is_outermost = not connection.in_atomic_block
    with transaction.atomic():
        if is_outermost:
            with connection.cursor() as cursor:
                mode = " READ ONLY" if is_read_only else ""
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ{mode}")
        yield
