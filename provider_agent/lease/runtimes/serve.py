"""Serving: one process that starts an engine, with the model from the node's shared weights."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from provider_agent.config import AgentConfig
from provider_agent.context import AgentContext
from provider_agent.errors import AssignmentRefused
from provider_agent.executors.base import WORK_NAME
from provider_agent.lease.runtimes.base import FetchedInput, Runtime
from provider_agent.lease.weights import weights_of
from provider_agent.lease.workfolder import EVENTS_NAME
from provider_agent.protocol import Assignment
from runtimes.contract import Env, EventKind, EventWriter

INPUT_LABEL = ".input"  # beside the shared host folders; no label of theirs begins with a dot


class ServeRuntime(Runtime):
    """runtimes.serve, announced to the gateways that the assignment names."""

    name: ClassVar[str] = "serve"

    def check(self, assignment: Assignment) -> None:
        """Refuse an assignment of our runtime that belongs to no endpoint: no caller could reach it."""
        if assignment.serve is None and not assignment.program.command:
            raise AssignmentRefused("The assignment serves a model, but names no endpoint.")

    async def fetch_input(self, context: AgentContext, assignment: Assignment, folder: Path) -> FetchedInput:
        """Bring the model into the node's shared weights; the program reads it as it reads a shared host folder."""
        if assignment.input_artifact_id is None:
            return FetchedInput()
        events = EventWriter(str(folder / WORK_NAME / EVENTS_NAME))

        def report_progress(done: int, total: int) -> None:
            events.write(EventKind.LOADING, stage="fetch", bytes=done, bytes_total=total)

        view = await weights_of(context.folder.root, context.folder.leases).bring(
            context.client,
            assignment.lease_id,
            assignment.input_artifact_id,
            folder,
            report_progress=report_progress,
            is_read_only=context.executor.name == "docker",
        )
        seen = f"{context.executor.seen_shared_folders(folder)}/{INPUT_LABEL}"
        return FetchedInput({INPUT_LABEL: str(view)}, {Env.INPUT_DIR: seen})

    def image(self, config: AgentConfig) -> str:
        """The provider's image with the engines."""
        return config.serve_image

    def launch_command(self, assignment: Assignment, *, python: str) -> list[str]:
        """One process that starts an engine; there are no ranks."""
        if assignment.serve is None:
            raise AssignmentRefused("The assignment serves a model, but names no endpoint.")
        return [python, "-m", "runtimes.serve", "--drain-seconds", str(assignment.serve.drain_seconds)]

    def is_announced(self, assignment: Assignment) -> bool:
        """Whether the assignment belongs to an endpoint."""
        return assignment.serve is not None
