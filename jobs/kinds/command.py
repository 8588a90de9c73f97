"""`kind: command`: a program of the customer's own."""

from __future__ import annotations

from jobs.kinds.base import Kind
from jobs.spec.kinds.command import CommandSpec


class Command(Kind):
    """Exactly what the interface describes: the command runs to its end."""

    spec_kind = CommandSpec()
