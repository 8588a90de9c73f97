"""Runs programs as process groups of the agent's own user. It isolates nothing but the agent itself.

A program can read and write whatever that user can, but for the agent's folder, where the keys are (landlock.py). Use
it for your own jobs, for tests and for the embedded mode.
Each program has a supervisor (see process_supervisor.py) that survives the agent and writes down how the program ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import psutil

from provider_agent.errors import BadConfig, ExecutorFailed
from provider_agent.executors import base, landlock, process_supervisor
from provider_agent.executors.base import Exit, Handle, LaunchSpec, ReportEvent
from provider_agent.overlay import Overlay
from provider_agent.system.atomic import write_atomically

WARNING = "The process executor isolates nothing: programs run as this user and can read what it can read."
KEYS_OPEN = "This kernel has no Landlock (Linux 5.19 and newer do): programs can read this agent's keys too."
OWN_JOBS = "This node takes jobs of your own organisation only."
STRANGERS = (
    "You allow strangers: it also takes jobs of organisations that you do not know, if they ask for no isolation."
)
PROGRAMS_PATH = "/usr/local/bin:/usr/bin:/bin"  # what programs find beside the runtime; no tools of root's
START_SECONDS_MAX = 15.0
KILL_SECONDS_MAX = 10.0
POLL_SECONDS = 0.02
GRACE_SECONDS = 30
SHARED_FOLDERS_NAME = "lent"
START_TIME_TOLERANCE = 0.05
SERVING_NEEDS = ("runtimes.serve", "torch", "transformers", "fastapi", "uvicorn")
EVALUATION_NEEDS = ("runtimes.evaluate", "torch", "transformers", "lm_eval")
FIND_SECONDS_MAX = 60.0
SHM_FOLDER = "/dev/shm"  # noqa: S108 - its size alone is read
MIB = 1024**2
# Only found, not imported: torch alone takes seconds, and memory.
FIND_MODULES = """
import sys
from importlib.util import find_spec
for name in sys.argv[1:]:
    try:
        found = find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is None:
        print(name)
"""
# Names and versions alone: the same version in two places, or one that was changed by hand, is not told apart.
DESCRIBE_PYTHON = """
import sys, sysconfig
from importlib.metadata import distributions
print(sys.version, sysconfig.get_platform(), sys.prefix)
print(*sorted({f"{each.name}=={each.version}" for each in distributions()}))
"""


class ProcessExecutor:
    """Programs as process groups below a supervisor each."""

    name = "process"

    def __init__(self, runtime_python: str, *, source_folder: str = "") -> None:
        self._runtime_python = runtime_python
        self._source_folder = source_folder  # where `runtimes` is, when it is not installed
        self._children: dict[int, subprocess.Popen[bytes]] = {}  # supervisors that this agent must reap
        self._attended: set[UUID] = set()  # leases that a task of this agent manages

    async def check(self) -> str:
        """Processes can always be started."""
        return f"process {sys.platform}"

    def seen_work(self, spec_folder: Path) -> str:
        """The path as it is: nothing is hidden."""
        return str(spec_folder / base.WORK_NAME)

    def python(self) -> str:
        """The runtime environment's interpreter."""
        return self._runtime_python

    async def python_base(self, image: str) -> str:
        """The interpreter, its platform, and every package that it has in its version."""
        return await asyncio.to_thread(self._run_python, DESCRIBE_PYTHON)

    def environment(self, seen_work: str) -> dict[str, str]:
        """A path that begins with the runtime environment; a source checkout is importable too."""
        path = f"{Path(self._runtime_python).parent}:{PROGRAMS_PATH}"
        found = {"PATH": path, "HOME": seen_work}
        return found | ({"PYTHONPATH": self._source_folder} if self._source_folder else {})

    def seen_shared_folders(self, spec_folder: Path) -> str:
        """A folder of links beside the work folder."""
        return str(spec_folder / SHARED_FOLDERS_NAME)

    def seen_cache(self, cache: Path) -> str:
        """The path as it is."""
        return str(cache)

    def isolation(self, *, has_gpus: bool) -> Literal["none"]:
        """Nothing."""
        return "none"

    def shm_mib(self, memory_mib: int) -> int:
        """That of the node, which all programs share: its size is nobody's to choose."""
        try:
            return shutil.disk_usage(SHM_FOLDER).total // MIB
        except OSError:
            return 0

    def gang(self, *, has_gpus: bool) -> Literal["address"]:
        """By the node's own addresses, which every program here shares."""
        return "address"

    def why_no_gang(self, *, has_gpus: bool) -> str:
        """Nothing stands in the way."""
        return ""

    async def why_no_serving(self, image: str, *, has_gpus: bool) -> str:
        """What the runtime environment lacks."""
        return await asyncio.to_thread(self._lacking, SERVING_NEEDS)

    async def why_no_evaluation(self, image: str) -> str:
        """What the runtime environment lacks."""
        return await asyncio.to_thread(self._lacking, EVALUATION_NEEDS)

    def _lacking(self, names: tuple[str, ...]) -> str:
        """Which of these modules the runtime environment does not have, as a sentence; empty where it has all."""
        try:
            lacking = self._run_python(FIND_MODULES, *names).split()
        except ExecutorFailed as error:
            return str(error)
        return f"{self._runtime_python} has no {', '.join(lacking)}" if lacking else ""

    def _run_python(self, program: str, *arguments: str) -> str:
        """What the runtime environment's interpreter prints; raises ExecutorFailed where it does not run."""
        python = self._runtime_python
        try:
            done = subprocess.run(  # noqa: S603 - the provider's own interpreter
                [python, "-c", program, *arguments],
                capture_output=True,
                text=True,
                timeout=FIND_SECONDS_MAX,
                check=False,
                cwd="/",
                env=self.environment("/"),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ExecutorFailed(f"{python} does not run: {error}") from error
        if done.returncode != 0:
            raise ExecutorFailed(f"{python} does not run: it ended with {done.returncode}")
        return done.stdout

    @property
    def has_egress(self) -> bool:
        """A program reaches whatever this user can."""
        return True

    async def sweep(self) -> None:
        """Supervisors clean up after themselves."""

    async def make_room(self, folder: Path, *, disk_share: float) -> int:
        """An ordinary folder without a limit."""
        return 0

    async def remove_room(self, folder: Path) -> None:
        """An ordinary folder."""

    def describe(self, spec: LaunchSpec) -> list[str]:
        """The agent warns at its start that nothing is isolated; there is nothing to promise."""
        return []

    async def ready(self, spec: LaunchSpec, report_event: ReportEvent) -> None:
        """Link the shared host folders; links only, because this executor isolates nothing."""
        folder = spec.folder / SHARED_FOLDERS_NAME
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for label, path in spec.shared_folders.items():
            (folder / label).symlink_to(path)

    async def start(self, spec: LaunchSpec) -> Handle:
        """Start a supervisor with the program below it, and wait until it has confirmed that."""
        for name in ("supervisor.json", "exit.json"):
            (spec.folder / name).unlink(missing_ok=True)
        launch = json.dumps(_launch_file(spec)).encode()
        write_atomically(spec.folder / "launch.json", launch, mode=0o600)
        self._attended.add(spec.lease_id)
        child = _spawn_supervisor(spec)
        self._children[child.pid] = child
        until = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < until:
            handle = _read_handle(spec.folder)
            if handle is not None:
                return handle
            if child.poll() is not None:
                break
            await asyncio.sleep(POLL_SECONDS)
        child.kill()
        (spec.folder / "launch.json").unlink(missing_ok=True)
        raise ExecutorFailed(f"The supervisor did not start; see {spec.folder / 'supervisor.log'}.")

    async def adopt(self, lease_id: UUID, folder: Path, handle: Handle | None) -> Handle | None:
        """From the journal's handle, or from the file of a supervisor that started just before the agent ended."""
        self._attended.add(lease_id)
        if handle is not None:
            return handle
        until = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < until:
            found = _read_handle(folder)
            if found is not None:
                return found
            if not processes_of(lease_id):
                return None
            await asyncio.sleep(POLL_SECONDS)
        return None

    async def poll(self, handle: Handle) -> Exit | None:
        """The exit that the supervisor wrote; with neither exit nor supervisor the program has vanished."""
        if _is_alive(handle, self._children):
            return None
        found = _read_exit(Path(handle["folder"]))
        if found is not None:
            return found
        await self.kill(handle)  # the supervisor was killed: nothing of the program may go on unwatched
        return Exit(vanished=True, message="the program and its supervisor are gone, without an exit code")

    async def extend(self, handle: Handle, seconds: float) -> None:
        """ReportEvent the supervisor until when it may go on without an agent."""
        until = time.clock_gettime(time.CLOCK_BOOTTIME) + seconds
        path, text = Path(handle["folder"]) / "lease_until", f"{until:.3f}".encode()
        try:
            write_atomically(path, text)
        except OSError:  # the disk is full: the same bytes in place need no further space
            with path.open("r+b", buffering=0) as there:
                there.write(text)

    async def regroup(self, handle: Handle, overlay: Overlay | None) -> None:
        """Nothing: its programs use the node's own address."""

    def give(self, path: Path) -> None:
        """It runs as the agent's own user."""

    async def stop(self, handle: Handle) -> None:
        """SIGTERM to the program's process group; torchrun forwards it to its workers."""
        if _is_alive(handle, self._children) and handle["child"]:
            try:
                os.killpg(handle["child"], signal.SIGTERM)
            except ProcessLookupError:
                return

    async def kill(self, handle: Handle) -> None:
        """SIGKILL to everything below the supervisor, and to whatever still carries the lease's marker."""
        until = time.monotonic() + KILL_SECONDS_MAX
        lease_id = UUID(handle["lease_id"])
        while time.monotonic() < until:
            spared = handle["pid"] if _is_alive(handle, self._children) else None
            victims = [pid for pid in processes_of(lease_id) if pid != spared]
            if spared is not None:
                victims += _below(spared)
            for pid in set(victims):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if not victims and spared is None:
                return
            await asyncio.sleep(POLL_SECONDS)
        if _is_alive(handle, self._children):
            os.kill(handle["pid"], signal.SIGKILL)

    async def find_strays(self, leases: Path) -> list[UUID]:
        """By the markers in their environments; those of other agents of this machine are theirs."""
        found = await asyncio.to_thread(_marked_leases, leases)
        return sorted(found - self._attended)

    async def kill_stray(self, lease_id: UUID) -> None:
        """SIGKILL until none is left that carries the lease's marker."""
        await self.kill({"pid": 0, "child": 0, "started": 0.0, "folder": "", "lease_id": str(lease_id)})

    async def cleanup(self, handle: Handle) -> None:
        """Reap the supervisor."""
        self._attended.discard(UUID(handle["lease_id"]))
        child = self._children.pop(handle["pid"], None)
        if child is not None:
            await asyncio.to_thread(child.wait, KILL_SECONDS_MAX)

    async def close(self) -> None:
        """Supervisors need nobody."""


def warning_of_strangers(allow_strangers: bool) -> str:
    """Whose jobs a node without isolation takes, in so many words; raises BadConfig where they would read its keys."""
    if allow_strangers and not landlock.is_available():
        raise BadConfig(
            f"{KEYS_OPEN} Leave out --allow-strangers, or switch Landlock on (lsm=...,landlock on the kernel's command"
            " line)."
        )
    said = STRANGERS if allow_strangers else OWN_JOBS
    return said if landlock.is_available() else f"{said} {KEYS_OPEN}"


def processes_of(lease_id: UUID) -> list[int]:
    """Every process of a lease on this node: its supervisor, and what carries its marker though it lost that one."""
    marker = f"{base.MARKER}={lease_id}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if marker in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
        except OSError:
            continue
    return sorted(found)


def _launch_file(spec: LaunchSpec) -> dict[str, Any]:
    """What the supervisor reads and deletes. The environment is the program's alone, not the agent's."""
    env = dict(spec.env) | {**_markers(spec), "CUDA_VISIBLE_DEVICES": ",".join(spec.gpu_uuids)}
    return {
        "argv": spec.argv,
        "cwd": str(spec.work),
        "env": env,
        "cores": spec.cores,
        "memory_mib_max": spec.memory_mib_max,
        "memory_mib_share": spec.memory_mib_share,
        "processes_max": base.PROCESSES_MAX,
        "file_bytes_max": base.FILE_BYTES_MAX,
        "log_bytes_max": base.LOG_BYTES_MAX,
        "log_cap_line": base.LOG_CAP_LINE,
        "grace_seconds": GRACE_SECONDS,
        "private": str(spec.private) if spec.private and landlock.is_available() else "",
        "readable": [str(path) for path in (spec.folder, spec.cache, *spec.readable) if path and path.exists()],
    }


def _spawn_supervisor(spec: LaunchSpec) -> subprocess.Popen[bytes]:
    """In a session of its own and without a parent-death signal: it must outlive the agent."""
    with (spec.folder / "supervisor.log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, "-I", "-S", process_supervisor.__file__, str(spec.folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=spec.folder,
            env={**_markers(spec), "PATH": os.defpath},
            start_new_session=True,
        )


def _read_handle(folder: Path) -> Handle | None:
    """Who the supervisor is: its pid with its start time, because pids are used again."""
    try:
        saved = json.loads((folder / "supervisor.json").read_text())
    except FileNotFoundError:
        return None
    try:
        started = psutil.Process(saved["pid"]).create_time()
    except psutil.NoSuchProcess:
        started = 0.0
    lease_id = folder.name
    return {
        "pid": saved["pid"],
        "child": saved["child"],
        "started": started,
        "folder": str(folder),
        "lease_id": lease_id,
    }


def _read_exit(folder: Path) -> Exit | None:
    try:
        return Exit.from_dict(json.loads((folder / "exit.json").read_text()))
    except FileNotFoundError:
        return None


def _is_alive(handle: Handle, children: dict[int, subprocess.Popen[bytes]]) -> bool:
    """Whether that very supervisor still runs; a zombie does not."""
    child = children.get(handle["pid"])
    if child is not None:
        return child.poll() is None
    try:
        process = psutil.Process(handle["pid"])
        is_same = abs(process.create_time() - handle["started"]) < START_TIME_TOLERANCE
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _below(pid: int) -> list[int]:
    try:
        return [process.pid for process in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _markers(spec: LaunchSpec) -> dict[str, str]:
    return {base.MARKER: str(spec.lease_id), base.OWNER: str(spec.folder.parent)}


def _marked_leases(leases: Path) -> set[UUID]:
    """Every lease of this owner that has a process."""
    owner, prefix = f"{base.OWNER}={leases}".encode(), f"{base.MARKER}=".encode()
    found: set[UUID] = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = environ.read_bytes().split(b"\0")
        except OSError:
            continue
        if owner in variables:
            marks = (each.removeprefix(prefix).decode() for each in variables if each.startswith(prefix))
            with contextlib.suppress(ValueError):  # a program may name itself what it likes
                found.update(UUID(mark) for mark in marks)
    return found
