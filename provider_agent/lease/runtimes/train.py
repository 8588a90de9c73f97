"""Training: one process per device, which meet through the addresses of the contract."""

from __future__ import annotations

from typing import ClassVar

from provider_agent.lease.endings import has_prepared
from provider_agent.lease.runtimes.base import Runtime
from provider_agent.protocol import Assignment
from runtimes.contract import PREPARING_FIRST_SECONDS


class TrainRuntime(Runtime):
    """runtimes.train under runtimes.launch."""

    name: ClassVar[str] = "train"

    def launch_command(self, assignment: Assignment, *, python: str) -> list[str]:
        """The launcher, which starts one process per device."""
        return [python, "-m", "runtimes.launch", "runtimes.train"]

    def has_cache(self, assignment: Assignment) -> bool:
        """Tokens and tokenizers, of our own training alone."""
        return not assignment.program.command

    def is_healthy(self, assignment: Assignment, *, events: bytes, has_output: bool, alive_seconds: float) -> bool:
        """Also healthy while it prepares: tokenising much data is the customer's work on rented devices.

        Only after PREPARING_FIRST_SECONDS by this agent's own clock, whatever the program writes.
        """
        if super().is_healthy(assignment, events=events, has_output=has_output, alive_seconds=alive_seconds):
            return True
        is_ours = not assignment.program.command
        return is_ours and alive_seconds >= PREPARING_FIRST_SECONDS and has_prepared(events)
