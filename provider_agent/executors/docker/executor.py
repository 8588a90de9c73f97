"""Runs programs in containers: the verbs that every executor has."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound
from docker.models.containers import Container
from docker.models.images import Image

from provider_agent.errors import ExecutorFailed, ImageUnavailable
from provider_agent.executors import scratch
from provider_agent.executors.base import Exit, Handle, LaunchSpec, ReportEvent
from provider_agent.executors.docker.containers import Containers
from provider_agent.executors.docker.create import (
    SEEN_CACHE,
    SEEN_SHARED_FOLDERS,
    SEEN_WORK,
    Protections,
    container_options,
    describe,
    filtered_names,
    has_cdi_devices,
)
from provider_agent.executors.docker.gangs import Gangs
from provider_agent.executors.docker.images import ensure_image, find_image, why_no_image, why_no_label
from provider_agent.executors.docker.network import Networks
from provider_agent.executors.firewall import Firewall
from provider_agent.overlay import Overlay, Overlays
from provider_agent.preflight.serving import GVISOR_RUNTIME, why_no_socket
from provider_agent.protocol import GangKind

CALL_SECONDS_MAX = 60
EVALUATION_LABEL = "souk.eval"  # of the training image, where it was built with the harness: Dockerfile.train

log = logging.getLogger(__name__)


class DockerExecutor:
    """Programs as containers of one engine."""

    name = "docker"

    def __init__(
        self,
        *,
        engine_url: str = "",
        user: str = "10001:10001",
        python: str = "python3",
        isolation: Literal["auto", "runc", "gvisor"] = "auto",
        offers_egress: bool = False,
        dns: tuple[str, ...] = (),
        firewall: Firewall | None = None,
        protections: Protections | None = None,
        overlays: Overlays | None = None,
    ) -> None:
        self.engine_url = engine_url
        self._user = user
        self._python = python
        self._wanted_isolation = isolation
        self._offers_egress = offers_egress
        self._dns = list(dns)
        self._protections = protections or Protections()
        self._attended: set[str] = set()  # folders' names of leases that a task of this agent manages
        self._disks: dict[Path, scratch.Scratch] = {}
        self._info: dict[str, Any] = {}
        self._why_no_egress = "the provider does not offer it"
        try:
            if engine_url:
                self._engine = docker.DockerClient(base_url=engine_url, timeout=CALL_SECONDS_MAX)
            else:
                self._engine = docker.from_env(timeout=CALL_SECONDS_MAX)
        except DockerException as error:
            raise ExecutorFailed(f"No container engine answers: {error}") from error
        self._gangs = Gangs(self._engine, overlays)
        self._networks = Networks(self._engine, firewall or Firewall(), is_filtered=self._protections.filter_egress)
        self._containers = Containers(
            self._engine, gangs=self._gangs, networks=self._networks, protections=self._protections
        )

    async def check(self) -> str:
        """The engine's version; from now on it is known what this node offers."""
        try:
            version = await asyncio.to_thread(self._engine.version)
            self._info = await asyncio.to_thread(self._engine.info)
        except (DockerException, requests.RequestException) as error:
            raise ExecutorFailed(f"No container engine answers: {error}") from error
        self._require_isolation()
        if self._offers_egress:
            self._why_no_egress = await asyncio.to_thread(self._networks.why_not)
            if self._why_no_egress:
                log.warning("Programs get no network: %s", self._why_no_egress)
        await asyncio.to_thread(self._gangs.check)
        return f"docker {version['Version']}"

    def seen_work(self, spec_folder: Path) -> str:
        """Every program sees its work folder in the same place."""
        return SEEN_WORK

    def python(self) -> str:
        """The image's interpreter."""
        return self._python

    async def python_base(self, image: str) -> str:
        """The image's id, a digest of all that is in it."""
        found = await asyncio.to_thread(find_image, self._engine, image)
        return "" if found is None else f"image {found.id}"

    def environment(self, seen_work: str) -> dict[str, str]:
        """The image has its own path; home is the only place to write that lasts."""
        return {"HOME": seen_work}

    def seen_shared_folders(self, spec_folder: Path) -> str:
        """Every program sees shared host folders in the same place."""
        return SEEN_SHARED_FOLDERS

    def seen_cache(self, cache: Path) -> str:
        """Every program sees them in the same place."""
        return SEEN_CACHE

    def isolation(self, *, has_gpus: bool) -> Literal["runc", "gvisor"]:
        """gVisor if the engine has it. It supports few GPUs, so with GPUs only if the provider chose it."""
        is_wanted = self._wanted_isolation == "gvisor" or (self._wanted_isolation == "auto" and not has_gpus)
        return "gvisor" if is_wanted and self._has_gvisor else "runc"

    @property
    def has_egress(self) -> bool:
        """If the provider offers it and the rules that limit it to public addresses can be installed."""
        return not self._why_no_egress

    def shm_mib(self, memory_mib: int) -> int:
        """All of it: what lies in /dev/shm counts in the container's memory."""
        return memory_mib

    def gang(self, *, has_gpus: bool) -> GangKind:
        """By an overlay of its own, if one is available."""
        return self._gangs.kind(self.isolation(has_gpus=has_gpus))

    def why_no_gang(self, *, has_gpus: bool) -> str:
        """What overlays need and is not here."""
        return self._gangs.why_not(self.isolation(has_gpus=has_gpus))

    async def why_no_serving(self, image: str, *, has_gpus: bool) -> str:
        """A sandbox that keeps the server's socket, or an image that cannot be fetched."""
        is_gvisor = self.isolation(has_gpus=has_gpus) == "gvisor"
        if is_gvisor and (why := why_no_socket(self._info.get("Runtimes") or {})):
            return why
        return await asyncio.to_thread(why_no_image, self._engine, image)

    async def why_no_evaluation(self, image: str) -> str:
        """An image that is not here yet, or was built without the harness."""
        return await asyncio.to_thread(why_no_label, self._engine, image, EVALUATION_LABEL)

    async def sweep(self) -> None:
        """Networks of leases whose container no longer exists."""
        try:
            await asyncio.to_thread(self._gangs.sweep)
            await asyncio.to_thread(self._networks.sweep)
        except (APIError, requests.RequestException) as error:
            raise ExecutorFailed(f"The engine did not list its networks: {error}") from error

    async def make_room(self, folder: Path, *, disk_share: float) -> int:
        """A disk of the lease's own, mounted below its folder."""
        if not self._protections.limit_disk:
            return 0
        made = await asyncio.to_thread(_make_scratch, folder, disk_share)
        self._disks[folder] = made
        return made.disk_mib_max

    async def remove_room(self, folder: Path) -> None:
        """Unmount the lease's disk and delete it."""
        self._disks.pop(folder, None)
        await asyncio.to_thread(scratch.unmount_scratch, folder)

    def describe(self, spec: LaunchSpec) -> list[str]:
        """What create.py makes of it."""
        disk = self._disks.get(spec.folder, scratch.Scratch(why_unlimited="none was made"))
        return describe(spec, runtime=self._runtime(spec), disk=str(disk), protections=self._protections)

    async def ready(self, spec: LaunchSpec, report_event: ReportEvent) -> None:
        """Pull the image if it is not here."""
        cancelled = threading.Event()
        try:
            await asyncio.to_thread(
                ensure_image,
                self._engine,
                spec.image,
                registries=spec.image_registries,
                report_event=report_event,
                cancelled=cancelled,
            )
        finally:
            cancelled.set()

    async def start(self, spec: LaunchSpec) -> Handle:
        """Create and start the container; an image that is not here yet is pulled first."""
        self._attended.add(spec.folder.name)
        return await asyncio.to_thread(self._start, spec)

    async def adopt(self, lease_id: UUID, folder: Path, handle: Handle | None) -> Handle | None:
        """By the container's label, so that also one whose handle was never journaled is found."""
        self._attended.add(folder.name)
        try:
            await asyncio.to_thread(scratch.remount_scratch, folder)
        except (OSError, subprocess.SubprocessError) as error:
            raise ExecutorFailed(f"The lease's disk could not be mounted again: {error}") from error
        found = await asyncio.to_thread(self._containers.find, lease_id)
        if found is None:
            return handle
        if found.status == "created":  # created but never started: begin again
            await asyncio.to_thread(found.remove, force=True)
            return None
        made = self._containers.attend(found, folder)
        await asyncio.to_thread(self._gangs.keep, made, is_adopted=True)
        return made

    async def poll(self, handle: Handle) -> Exit | None:
        """What the engine reports of the container, once its output is in the log."""
        return await asyncio.to_thread(self._containers.poll, handle)

    async def extend(self, handle: Handle, seconds: float) -> None:
        """The engine has no data on leases: only the watchdog ends them. Networks and their rules are restored."""
        if handle.get("has_egress"):
            await asyncio.to_thread(self._networks.keep_rules)
        await asyncio.to_thread(self._gangs.keep, handle)

    async def regroup(self, handle: Handle, overlay: Overlay | None) -> None:
        """Make its gang's interface anew, with the members that it has now."""
        if overlay is not None:
            await asyncio.to_thread(self._gangs.regroup, handle, overlay)

    def give(self, path: Path) -> None:
        """To the container's user."""
        scratch.give_to(path, self._user)

    async def stop(self, handle: Handle) -> None:
        """SIGTERM to the container's first process; the engine's init forwards it."""
        await asyncio.to_thread(self._containers.send_signal, handle, signal.SIGTERM)

    async def kill(self, handle: Handle) -> None:
        """SIGKILL; the process namespace ends with it."""
        await asyncio.to_thread(self._containers.send_signal, handle, signal.SIGKILL)

    async def find_strays(self, leases: Path) -> list[UUID]:
        """By the containers' labels, also of those that have ended."""
        owned = await asyncio.to_thread(self._containers.find_owned, leases)
        return sorted(lease_id for lease_id in owned if str(lease_id) not in self._attended)

    async def kill_stray(self, lease_id: UUID) -> None:
        """Remove its container, running or not, and its network."""
        await asyncio.to_thread(self._containers.remove_stray, lease_id)

    async def cleanup(self, handle: Handle) -> None:
        """Remove the container and its network; with the last network go the rules."""
        self._attended.discard(handle["lease_id"])
        await asyncio.to_thread(self._containers.remove, handle)

    async def close(self) -> None:
        """Stop copying output; a new agent continues where the log ends."""
        await asyncio.to_thread(self._containers.let_go)

    # --- blocking, in a thread

    def _start(self, spec: LaunchSpec) -> Handle:
        if spec.has_egress and not self.has_egress:
            raise ExecutorFailed(f"This node gives programs no network: {self._why_no_egress}.")
        self._gangs.require(spec, self.isolation(has_gpus=bool(spec.gpu_uuids)))
        image = find_image(self._engine, spec.image)
        if image is None:
            image = ensure_image(
                self._engine,
                spec.image,
                registries=spec.image_registries,
                report_event=_report_nothing,
                cancelled=threading.Event(),
            )
        scratch.give_to(spec.work.resolve(), self._user)
        try:
            container = self._create(spec, image)
            self._begin(spec, container)
        except (ExecutorFailed, ImageUnavailable):
            self._networks.remove(spec.lease_id)
            raise
        return self._containers.attend(container, spec.folder)

    def _create(self, spec: LaunchSpec, image: Image) -> Container:
        given = list(image.attrs["Config"].get("Env") or [])
        if taken := filtered_names([*(entry.partition("=")[0] for entry in given), *spec.env]):
            log.warning("Variables were taken away: %s. lease_id=%s", ", ".join(taken), spec.lease_id)
        with self._networks.hold():
            options = container_options(
                spec,
                image=str(image.id),
                image_environment=given,
                user=self._user,
                network=self._networks.make(spec),
                dns=self._dns,
                runtime=self._runtime(spec),
                has_cdi=has_cdi_devices(self._info, spec.gpu_uuids),
                protections=self._protections,
            )
            try:
                return self._engine.containers.create(**options)
            except ImageNotFound as error:
                raise ImageUnavailable(f"The image {spec.image} cannot be fetched: {error.explanation}") from error
            except (APIError, requests.RequestException) as error:
                raise ExecutorFailed(f"The engine did not create the container: {error}") from error

    def _begin(self, spec: LaunchSpec, container: Container) -> None:
        """Start it, and have it join its gang; where that fails nothing of it is left."""
        try:
            container.start()
            self._gangs.join(spec, container)
        except ExecutorFailed:
            container.remove(force=True)
            raise
        except (APIError, requests.RequestException, OSError) as error:
            container.remove(force=True)
            raise ExecutorFailed(f"The engine did not start the container: {error}") from error

    def _require_isolation(self) -> None:
        if self._wanted_isolation == "gvisor" and not self._has_gvisor:
            raise ExecutorFailed(
                f"The engine has no runtime {GVISOR_RUNTIME}; install gVisor, or choose isolation runc."
            )

    @property
    def _has_gvisor(self) -> bool:
        return GVISOR_RUNTIME in (self._info.get("Runtimes") or {})

    def _runtime(self, spec: LaunchSpec) -> str:
        """The engine's name for it; empty for its default."""
        return GVISOR_RUNTIME if self.isolation(has_gpus=bool(spec.gpu_uuids)) == "gvisor" else ""


def _make_scratch(folder: Path, share: float) -> scratch.Scratch:
    return scratch.mount_scratch(folder, scratch.share_of_disk(folder.parent, share))


def _report_nothing(event: str, **data: Any) -> None:
    """For programs that were not made ready first."""
