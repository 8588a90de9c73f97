"""Several threads at one thing, each with a database connection of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from django.db import connection, connections

T = TypeVar("T")
BLOCKED_LOOKS_MAX = 500  # 10 s


def race(*verbs: Callable[[], T]) -> list[T | Exception]:
    """Start all at the same moment; what each returned or raised, in their order."""
    start = Barrier(len(verbs))

    def attempt(verb: Callable[[], T]) -> T | Exception:
        try:
            start.wait(timeout=10)
            return verb()
        except Exception as error:
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(verbs)) as pool:
        return list(pool.map(attempt, verbs))


def wait_for_blocked() -> None:
    """Until another connection waits for a lock that this one holds."""
    for _ in range(BLOCKED_LOOKS_MAX):
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))")
            if cursor.fetchone()[0]:
                return
        time.sleep(0.02)
    raise AssertionError("nobody waits for this connection")
