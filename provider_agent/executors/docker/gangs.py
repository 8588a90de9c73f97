"""Containers of a gang: each is started without a network, and given its gang's interface right after.

A program waits for it (runtimes/launch.py does): the network namespace exists only once the container runs.
"""

from __future__ import annotations

import logging
from uuid import UUID

import docker
import requests
from docker.errors import APIError
from docker.models.containers import Container

from provider_agent.errors import ExecutorFailed
from provider_agent.executors.base import Handle, LaunchSpec
from provider_agent.executors.docker.create import LABEL
from provider_agent.overlay import Overlay, Overlays
from provider_agent.overlay.system import Program
from provider_agent.protocol import GangKind

log = logging.getLogger(__name__)


class Gangs:
    """What one engine's containers have of gangs' networks; `overlays` is None where the node is in no fabric."""

    def __init__(self, engine: docker.DockerClient, overlays: Overlays | None) -> None:
        self._engine = engine
        self._overlays = overlays
        self._why_not = "the node is in no fabric"
        self._late: set[UUID] = set()  # leases that ended, and whose network is still there

    def check(self) -> None:
        """Find out whether programs here can join gangs."""
        if self._overlays is not None:
            self._why_not = self._overlays.why_not()
            if self._why_not:
                log.warning("Programs join no gang: %s", self._why_not)

    def kind(self, isolation: str) -> GangKind:
        """The overlay's kind, for programs of this isolation."""
        return "none" if self._overlays is None or self.why_not(isolation) else self._overlays.kind

    def why_not(self, isolation: str) -> str:
        """Why they can join none; empty when they can. gVisor sees no interface that comes after its start."""
        return self._why_not or ("gVisor cannot be given the gang's interface" if isolation == "gvisor" else "")

    def require(self, spec: LaunchSpec, isolation: str) -> None:
        """Raises ExecutorFailed for a program of a gang that cannot join it here."""
        if spec.overlay is not None and (why := self.why_not(isolation)):
            raise ExecutorFailed(f"Programs of this node join no gang: {why}.")

    def join(self, spec: LaunchSpec, container: Container) -> None:
        """Give a container that was just started its gang's interface; raises ExecutorFailed or APIError."""
        if spec.overlay is not None and self._overlays is not None:
            self._overlays.make(spec.overlay, _program(container))

    def keep(self, handle: Handle, *, is_adopted: bool = False) -> None:
        """Restore what is missing of a running container's; if that fails it is tried again with the next beat."""
        for ended in list(self._late):
            self.leave(ended)
        lease_id = UUID(handle["lease_id"])
        if self._overlays is None or not self._overlays.has(lease_id):
            return
        try:
            container = self._engine.containers.get(handle["container"])
            if container.status == "running":
                self._overlays.keep(lease_id, _program(container), is_thorough=is_adopted)
        except (APIError, requests.RequestException, OSError, ExecutorFailed) as error:
            log.warning("The gang's network was not looked after: %s lease_id=%s", error, lease_id)

    def regroup(self, handle: Handle, overlay: Overlay) -> None:
        """Give a running container its gang's interface anew, with other members; raises ExecutorFailed, APIError, or
        OSError where the record cannot be written."""
        if self._overlays is not None:
            self._overlays.change(overlay, _program(self._engine.containers.get(handle["container"])))

    def leave(self, lease_id: UUID) -> None:
        """The lease's program has ended: its gang's network goes with it, now or with a later beat of another's."""
        self._late.discard(lease_id)
        if self._overlays is None or not self._overlays.has(lease_id):
            return
        try:
            self._overlays.remove(lease_id)
        except (OSError, ExecutorFailed) as error:
            self._late.add(lease_id)
            log.warning("The gang's network was not removed yet: %s lease_id=%s", error, lease_id)

    def sweep(self) -> None:
        """Remove what earlier agents left of containers that do not run any more, before any is started; raises
        APIError."""
        if self._overlays is not None:
            running = self._engine.containers.list(filters={"label": LABEL})
            self._overlays.sweep({UUID(container.labels[LABEL]) for container in running})


def _program(container: Container) -> Program:
    container.reload()
    return Program(int(container.attrs["State"]["Pid"]), str(container.id))
