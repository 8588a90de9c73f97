"""The server's time. Everything that decides by time asks here, so that tests can move it."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The present moment, aware UTC."""
    return datetime.now(UTC)
