"""`kind: command`: a program of the customer's own that runs to its end, from a command line and maybe an image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobs.spec.kinds.base import Finding, SpecKind, check_own_command


class CommandSpec(SpecKind):
    """A job file with `command`, and no section of its own."""

    name = "command"
    meaningless = ("evaluation",)

    def check(self, data: Mapping[str, Any]) -> Iterator[Finding]:
        """There has to be a command; its work is counted in steps."""
        if data.get("command") is None:
            yield (), "nothing to do: no command is given", "command: a text or a list of words"
        yield from check_own_command(data)
