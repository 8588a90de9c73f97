"""Training: one process per device, which meet through the addresses of the contract."""

from __future__ import annotations

from typing import ClassVar

from provider_agent.lease.runtimes.base import Runtime
from provider_agent.protocol import Assignment


class TrainRuntime(Runtime):
    """runtimes.train under runtimes.launch."""

    name: ClassVar[str] = "train"

    def launch_command(self, assignment: Assignment, *, python: str) -> list[str]:
        """The launcher, which starts one process per device."""
        return [python, "-m", "runtimes.launch", "runtimes.train"]
