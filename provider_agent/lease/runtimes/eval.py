"""Evaluation: one process, which computes on all devices of the node."""

from __future__ import annotations

from typing import ClassVar

from provider_agent.lease.runtimes.base import Runtime
from provider_agent.protocol import Assignment


class EvalRuntime(Runtime):
    """runtimes.evaluate, which needs the harness where the program runs."""

    name: ClassVar[str] = "eval"

    def launch_command(self, assignment: Assignment, *, python: str) -> list[str]:
        """One process without a launcher: it has no ranks, and takes SIGTERM itself."""
        return [python, "-m", "runtimes.evaluate"]
