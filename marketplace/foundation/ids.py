"""Ids of everything that has one."""

from __future__ import annotations

from uuid import UUID, uuid4


def new_id() -> UUID:
    """A random UUID: it does not show when or in which order it was made."""
    return uuid4()
