"""The customer's own command: no runtime of ours, so the agent does not interpret its events and exit codes."""

from __future__ import annotations

from typing import ClassVar

from provider_agent.errors import AssignmentRefused
from provider_agent.lease.runtimes.base import Runtime
from provider_agent.protocol import Assignment


class CommandRuntime(Runtime):
    """An assignment that names no runtime."""

    name: ClassVar[str] = "command"

    def check(self, assignment: Assignment) -> None:
        """Refuse an assignment without a command: there would be nothing to run."""
        if not assignment.program.command:
            raise AssignmentRefused("The assignment names neither a runtime nor a command.")

    def launch_command(self, assignment: Assignment, *, python: str) -> list[str]:
        """There is none; `check` has refused such an assignment."""
        raise AssignmentRefused("The assignment names neither a runtime nor a command.")
