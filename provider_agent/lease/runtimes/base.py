"""The interface of a runtime on the node: what it fetches, how it starts, when it is healthy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from provider_agent.config import AgentConfig
from provider_agent.context import AgentContext
from provider_agent.executors.base import WORK_NAME
from provider_agent.lease.endings import has_started
from provider_agent.lease.fetch import fetch_artifact
from provider_agent.lease.workfolder import INPUT_NAME
from provider_agent.protocol import Assignment

HEALTHY_AFTER_SECONDS = 1.0  # an own command that lives this long, or has printed something, is running


@dataclass(frozen=True)
class FetchedInput:
    """What fetching the input adds to the program's start, beside the files in its work folder."""

    shared_folders: dict[str, str] = field(default_factory=dict)  # label -> folder, mounted as shared host folders are
    environment: dict[str, str] = field(default_factory=dict)  # overrides the contract's variables


class Runtime(ABC):
    """How programs of one runtime are prepared, started and watched on this node. Has no state of its own.

    A customer's own command may run under any runtime: it replaces the launch command, and its events and exit codes
    are not trusted.
    """

    name: ClassVar[str]

    def check(self, assignment: Assignment) -> None:  # noqa: B027 - most runtimes can run any assignment
        """Raise AssignmentRefused for an assignment that this runtime cannot run."""

    async def fetch_input(self, context: AgentContext, assignment: Assignment, folder: Path) -> FetchedInput:
        """Fetch the input artifact, if there is one, into the lease's folder, and what earlier jobs left into folders
        of their own; may be repeated."""
        into = folder / WORK_NAME / INPUT_NAME
        if assignment.input_artifact_id is not None:
            await fetch_artifact(context.client, assignment.lease_id, assignment.input_artifact_id, into)
        for name, artifact_id in assignment.inputs.items():
            await fetch_artifact(context.client, assignment.lease_id, artifact_id, into / name)
        return FetchedInput()

    def image(self, config: AgentConfig) -> str:
        """The provider's container image for it, for a job that names none."""
        return config.train_image

    def command_line(self, assignment: Assignment, *, python: str) -> list[str]:
        """The customer's own command, or the runtime's launch command."""
        command = assignment.program.command
        return list(command) if command else self.launch_command(assignment, python=python)

    @abstractmethod
    def launch_command(self, assignment: Assignment, *, python: str) -> list[str]:
        """What starts the runtime; it reads the variables of runtimes/contract.py."""

    def is_healthy(self, assignment: Assignment, *, events: bytes, has_output: bool, alive_seconds: float) -> bool:
        """The first healthy signal: the runtime's `started` event; of an own command output, or a second of life."""
        if assignment.program.command:
            return has_output or alive_seconds >= HEALTHY_AFTER_SECONDS
        return has_started(events)

    def has_cache(self, assignment: Assignment) -> bool:
        """Whether its program reads the node's cache and leaves entries there. Never an own command: what one writes
        into a manifest our own programs would believe, and a wrong digest of tokens condemns a right checkpoint."""
        return False

    def is_announced(self, assignment: Assignment) -> bool:
        """Whether it answers requests: announced to the gateways once it is ready, its token usage stated."""
        return False
