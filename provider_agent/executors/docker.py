"""Runs programs in containers through the Docker SDK, which nothing else imports.

Unprivileged: no capabilities, no new privileges, read-only root, a user that is not root, limits on memory,
processes and processor, no network unless the job is a gang. The work folder at /souk is the only place to write
that lasts; /tmp is memory.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

from provider_agent.errors import ExecutorFailed, ImageUnavailable
from provider_agent.executors import base
from provider_agent.executors.base import Exit, Handle, LaunchSpec

CALL_SECONDS_MAX = 60
LOG_DRAIN_SECONDS_MAX = 10.0
PIDS_MAX = 1024
TMP_BYTES = 1024**3
SHM_BYTES = 1024**3
MIB = 1024**2
SEEN_WORK = "/souk"
LABEL = "souk.lease"
ENGINE_LOG_BYTES = 4 * base.LOG_BYTES_MAX  # the engine's own copy; JSON makes lines longer


class DockerExecutor:
    """Programs as containers of one engine."""

    name = "docker"

    def __init__(
        self, *, engine_url: str = "", user: str = "10001:10001", python: str = "python3", fabric_network: str = ""
    ) -> None:
        self.engine_url = engine_url
        self._user = user
        self._python = python
        self._fabric_network = fabric_network
        self._pumps: dict[str, LogPump] = {}
        try:
            if engine_url:
                self._engine = docker.DockerClient(base_url=engine_url, timeout=CALL_SECONDS_MAX)
            else:
                self._engine = docker.from_env(timeout=CALL_SECONDS_MAX)
        except DockerException as error:
            raise ExecutorFailed(f"No container engine answers: {error}") from error

    async def check(self) -> str:
        """The engine's version."""
        try:
            version = await asyncio.to_thread(self._engine.version)
        except (DockerException, requests.RequestException) as error:
            raise ExecutorFailed(f"No container engine answers: {error}") from error
        return f"docker {version['Version']}"

    def seen_work(self, spec_folder: Path) -> str:
        """Every program sees its work folder in the same place."""
        return SEEN_WORK

    def python(self) -> str:
        """The image's interpreter."""
        return self._python

    def environment(self, seen_work: str) -> dict[str, str]:
        """The image has its own path; home is the only place to write that lasts."""
        return {"HOME": seen_work}

    async def start(self, spec: LaunchSpec) -> Handle:
        """Pull the image if it is not here, then create and start the container."""
        return await asyncio.to_thread(self._start, spec)

    async def adopt(self, lease_id: UUID, folder: Path, handle: Handle | None) -> Handle | None:
        """By the container's label, so that also one whose handle was never journaled is found."""
        try:
            found = await asyncio.to_thread(self._find, lease_id)
        except (APIError, requests.RequestException) as error:
            raise ExecutorFailed(f"The engine did not list its containers: {error}") from error
        if found is None:
            return handle
        if found.status == "created":  # created but never started: begin again
            await asyncio.to_thread(found.remove, force=True)
            return None
        return self._handle(found, folder)

    async def poll(self, handle: Handle) -> Exit | None:
        """The engine's word on the container, once its output is in the log."""
        return await asyncio.to_thread(self._poll, handle)

    async def extend(self, handle: Handle, seconds: float) -> None:
        """An engine knows no leases: the watchdog alone holds them."""

    async def stop(self, handle: Handle) -> None:
        """SIGTERM to the container's first process; the engine's init hands it on."""
        await asyncio.to_thread(self._signal, handle, signal.SIGTERM)

    async def kill(self, handle: Handle) -> None:
        """SIGKILL; the process namespace ends with it."""
        await asyncio.to_thread(self._signal, handle, signal.SIGKILL)

    async def cleanup(self, handle: Handle) -> None:
        """Remove the container."""
        self._pumps.pop(handle["container"], None)
        await asyncio.to_thread(self._remove, handle)

    async def close(self) -> None:
        """Stop copying output; a new agent goes on where the log ends."""
        for pump in self._pumps.values():
            await asyncio.to_thread(pump.close)
        self._pumps.clear()

    # --- blocking, in a thread

    def _start(self, spec: LaunchSpec) -> Handle:
        self._ensure_image(spec.image)
        _give_to(spec.work, self._user)
        try:
            container = self._engine.containers.create(**self._options(spec))
        except ImageNotFound as error:
            raise ImageUnavailable(f"The image {spec.image} cannot be had: {error.explanation}") from error
        except (APIError, requests.RequestException) as error:
            raise ExecutorFailed(f"The engine did not create the container: {error}") from error
        try:
            container.start()
        except (APIError, requests.RequestException) as error:
            container.remove(force=True)
            raise ExecutorFailed(f"The engine did not start the container: {error}") from error
        return self._handle(container, spec.folder)

    def _options(self, spec: LaunchSpec) -> dict[str, Any]:
        """The container's whole configuration; what is not here is the engine's default."""
        memory = spec.memory_mib_max * MIB
        gpus = [DeviceRequest(device_ids=spec.gpu_uuids, capabilities=[["gpu"]])] if spec.gpu_uuids else None
        return {
            "image": spec.image,
            "command": spec.argv,
            "entrypoint": [],
            "name": f"souk-{spec.lease_id}",
            "labels": {LABEL: str(spec.lease_id)},
            "environment": dict(spec.env) | {base.MARKER: str(spec.lease_id)},
            "user": self._user,
            "working_dir": SEEN_WORK,
            "mounts": [Mount(SEEN_WORK, str(spec.work), type="bind")],
            "read_only": True,
            "tmpfs": {"/tmp": f"rw,nosuid,nodev,size={TMP_BYTES}"},  # noqa: S108 - inside the container
            "shm_size": SHM_BYTES,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "privileged": False,
            "init": True,
            "pids_limit": PIDS_MAX,
            "mem_limit": memory or None,
            "memswap_limit": memory or None,  # equal to the limit: no swap
            "cpuset_cpus": ",".join(str(core) for core in spec.cores) or None,
            "ulimits": [Ulimit(name="core", soft=0, hard=0)],
            "network_mode": (self._fabric_network or "bridge") if spec.needs_network else "none",
            "device_requests": gpus,
            "log_config": LogConfig(
                type=LogConfig.types.JSON, config={"max-size": str(ENGINE_LOG_BYTES), "max-file": "1"}
            ),
            "detach": True,
        }

    def _ensure_image(self, image: str) -> None:
        try:
            self._engine.images.get(image)
            return
        except ImageNotFound:
            pass
        except (APIError, requests.RequestException) as error:
            raise ExecutorFailed(f"The engine did not list its images: {error}") from error
        try:
            self._engine.api.pull(image, stream=False)
            self._engine.images.get(image)
        except (APIError, requests.RequestException) as error:
            raise ImageUnavailable(f"The image {image} cannot be had: {error}") from error

    def _find(self, lease_id: UUID) -> Container | None:
        found = self._engine.containers.list(all=True, filters={"label": f"{LABEL}={lease_id}"})
        return found[0] if found else None

    def _handle(self, container: Container, folder: Path) -> Handle:
        self._pump(container, folder)
        return {"container": container.id, "folder": str(folder), "lease_id": folder.name}

    def _pump(self, container: Container, folder: Path) -> LogPump:
        """The one thread that copies this container's output into the lease's log."""
        assert container.id is not None  # noqa: S101 - the SDK's type allows a container that was never created
        if container.id not in self._pumps:
            self._pumps[container.id] = LogPump(container, base.log_path(folder))
        return self._pumps[container.id]

    def _poll(self, handle: Handle) -> Exit | None:
        try:
            container = self._engine.containers.get(handle["container"])
        except NotFound:
            return Exit(vanished=True, message="the container is gone, without an exit code")
        except (APIError, requests.RequestException) as error:
            raise ExecutorFailed(f"The engine did not answer: {error}") from error
        pump = self._pump(container, Path(handle["folder"]))
        state = container.attrs["State"]
        if state["Status"] in {"created", "running", "paused", "restarting"}:
            return None
        pump.join(LOG_DRAIN_SECONDS_MAX)
        code = int(state["ExitCode"])
        is_oom = bool(state.get("OOMKilled"))
        is_signal = code > 128
        return Exit(
            code=None if is_signal else code,
            signal=code - 128 if is_signal else None,
            out_of_memory=is_oom and code != 0,
            message="the container used more memory than it may" if is_oom else state.get("Error", ""),
        )

    def _signal(self, handle: Handle, number: signal.Signals) -> None:
        try:
            self._engine.containers.get(handle["container"]).kill(signal=int(number))
        except NotFound:
            return
        except (APIError, requests.RequestException) as error:
            if isinstance(error, APIError) and error.status_code == 409:  # it is not running any more
                return
            raise ExecutorFailed(f"The engine did not signal the container: {error}") from error

    def _remove(self, handle: Handle) -> None:
        try:
            self._engine.containers.get(handle["container"]).remove(force=True, v=True)
        except NotFound:
            return
        except (APIError, requests.RequestException) as error:
            raise ExecutorFailed(f"The engine did not remove the container: {error}") from error


class LogPump:
    """Copies a container's output into a file until it ends; after a restart it skips what the file has."""

    def __init__(self, container: Container, path: Path) -> None:
        self._container = container
        self._path = path
        self._stream: Any = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._copy, name="souk-log-pump", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until everything is copied."""
        self._thread.join(seconds)

    def close(self) -> None:
        """Stop copying, wherever it is."""
        self._is_closed = True
        if self._stream is not None and self._thread.is_alive():
            self._stream.close()
        self._thread.join(LOG_DRAIN_SECONDS_MAX)

    def _copy(self) -> None:
        """The engine keeps the whole output, so the file's length says how much to skip."""
        cap_line = base.LOG_CAP_LINE.encode()
        left = base.LOG_BYTES_MAX - len(cap_line)
        with self._path.open("ab", buffering=0) as log:
            skip = log.tell()
            if skip > left:
                return
            left -= skip
            try:
                self._stream = self._container.logs(stream=True, follow=True)
                for chunk in self._stream:
                    if self._is_closed:
                        return
                    data, skip = chunk[skip:], max(skip - len(chunk), 0)
                    log.write(data[:left])
                    left -= len(data)
                    if left < 0:
                        log.write(cap_line)
                        return
            except (DockerException, requests.RequestException, OSError):
                if self._is_closed:
                    return
                log.write(b"\n[souk] the engine stopped sending this log\n")


def _give_to(work: Path, user: str) -> None:
    """The container's user owns its work folder and what was fetched into it. Links are not followed."""
    uid, gid = (int(part) for part in user.split(":"))
    if os.geteuid() != 0:
        work.chmod(0o777)
        return
    for folder, _folders, files in os.walk(work):
        os.chown(folder, uid, gid, follow_symlinks=False)
        for name in files:
            os.chown(Path(folder) / name, uid, gid, follow_symlinks=False)
