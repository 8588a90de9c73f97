"""The leases' containers of one engine, found by their labels: their output, their signals, their end."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from uuid import UUID

import docker
import requests
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container

from provider_agent.errors import ExecutorFailed
from provider_agent.executors.base import Exit, Handle
from provider_agent.executors.docker.absence import Absence
from provider_agent.executors.docker.create import LABEL, OWNER_LABEL, Protections
from provider_agent.executors.docker.exits import exit_of
from provider_agent.executors.docker.gangs import Gangs
from provider_agent.executors.docker.logs import LOG_DRAIN_SECONDS_MAX, LogPump
from provider_agent.executors.docker.network import NAME_PREFIX, Networks

log = logging.getLogger(__name__)


class Containers:
    """Every method blocks, and raises ExecutorFailed where the engine does not answer."""

    def __init__(
        self, engine: docker.DockerClient, *, gangs: Gangs, networks: Networks, protections: Protections
    ) -> None:
        self._engine = engine
        self._gangs = gangs
        self._networks = networks
        self._protections = protections
        self._pumps: dict[str, LogPump] = {}
        self._absence = Absence()
        self._signalled: set[str] = set()  # containers to which we sent a signal

    def find(self, lease_id: UUID) -> Container | None:
        """A lease's container, running or not."""
        try:
            found = self._engine.containers.list(all=True, filters={"label": f"{LABEL}={lease_id}"})
        except (APIError, requests.RequestException) as error:
            raise ExecutorFailed(f"The engine did not list its containers: {error}") from error
        return found[0] if found else None

    def find_owned(self, leases: Path) -> set[UUID]:
        """The leases below this folder that have a container, running or not."""
        try:
            found = self._engine.containers.list(all=True, filters={"label": f"{OWNER_LABEL}={leases}"})
            return {UUID(container.labels[LABEL]) for container in found if LABEL in container.labels}
        except (APIError, requests.RequestException) as error:
            raise ExecutorFailed(f"The engine did not list its containers: {error}") from error

    def attend(self, container: Container, folder: Path) -> Handle:
        """Copy its output from now on; by the handle it is found again."""
        self._pump(container, folder)
        network = container.attrs.get("HostConfig", {}).get("NetworkMode", "")
        has_egress = network == f"{NAME_PREFIX}{folder.name}"
        return {"container": container.id, "folder": str(folder), "lease_id": folder.name, "has_egress": has_egress}

    def poll(self, handle: Handle) -> Exit | None:
        """What the engine reports of a container, once its output is in the log."""
        try:
            container = self._engine.containers.get(handle["container"])
        except NotFound:
            self._gangs.leave(UUID(handle["lease_id"]))
            return Exit(vanished=True, message="the container is gone, without an exit code")
        except (APIError, requests.RequestException) as error:
            self._absence.missed()
            raise ExecutorFailed(f"The engine did not answer: {error}") from error
        self._absence.answered()
        pump = self._pump(container, Path(handle["folder"]))
        state = container.attrs["State"]
        if state["Status"] in {"created", "running", "paused", "restarting"}:
            return None
        self._gangs.leave(UUID(handle["lease_id"]))
        pump.join(LOG_DRAIN_SECONDS_MAX)
        try:
            is_engines = handle["container"] not in self._signalled and self._absence.ended(
                self._engine, handle["container"], state
            )
        except (DockerException, requests.RequestException) as error:
            self._absence.missed()
            raise ExecutorFailed(f"The engine did not answer: {error}") from error
        if is_engines:
            return Exit(vanished=True, message="the container engine stopped, and the program with it")
        return exit_of(state)

    def send_signal(self, handle: Handle, number: signal.Signals) -> None:
        """To a container's first process; one that runs no more needs none."""
        self._signalled.add(handle["container"])
        try:
            self._engine.containers.get(handle["container"]).kill(signal=int(number))
        except NotFound:
            return
        except (APIError, requests.RequestException) as error:
            if isinstance(error, APIError) and error.status_code == 409:  # it is not running any more
                return
            raise ExecutorFailed(f"The engine did not signal the container: {error}") from error

    def remove(self, handle: Handle) -> None:
        """Remove a container and its network; one that is removed already is no error."""
        self._signalled.discard(handle["container"])
        self._pumps.pop(handle["container"], None)
        try:
            self._engine.containers.get(handle["container"]).remove(force=True, v=True)
        except NotFound:
            pass
        except (APIError, requests.RequestException) as error:
            raise ExecutorFailed(f"The engine did not remove the container: {error}") from error
        self._gangs.leave(UUID(handle["lease_id"]))
        if handle.get("has_egress"):
            self._networks.remove(UUID(handle["lease_id"]))

    def remove_stray(self, lease_id: UUID) -> None:
        """A container that no task of this agent manages, running or not, and its network."""
        container = self.find(lease_id)
        try:
            if container is not None:
                container.remove(force=True)
        except (APIError, requests.RequestException) as error:
            raise ExecutorFailed(f"The engine did not remove a container: {error}") from error
        self._gangs.leave(lease_id)
        self._networks.remove(lease_id)

    def let_go(self) -> None:
        """Copy no more output; a new agent continues where the log ends."""
        for pump in self._pumps.values():
            pump.close()
        self._pumps.clear()

    def _pump(self, container: Container, folder: Path) -> LogPump:
        """The one thread that copies this container's output into the lease's log."""
        assert container.id is not None  # noqa: S101 - the SDK's type allows a container that was never created
        if container.id not in self._pumps:
            self._pumps[container.id] = LogPump(container, folder, bytes_max=self._protections.log_cap)
        return self._pumps[container.id]
