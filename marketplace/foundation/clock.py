"""The server's time. Everything that decides by time calls this, so that tests can change it."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The present moment, aware UTC."""
    return datetime.now(UTC)
