"""What every executor promises. `tests/contracts/executors` holds each implementation to it.

- A program that was started goes on when the agent ends, and `adopt` finds it again.
- Standard output and error are in `log_path(folder)`, up to LOG_BYTES_MAX and with a last line that says so.
- `poll` never invents an exit: a program that cannot be found any more has `vanished`.
- After `kill` no process of the program is left, also none that it detached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import UUID

from provider_agent.overlay import Overlay
from provider_agent.protocol import GangKind
from provider_agent.system.atomic import write_atomically

LOG_BYTES_MAX = 64 * 1024 * 1024
LOG_CAP_LINE = "\n[souk] the log reached its limit of 64 MiB; what follows was dropped\n"
FILE_BYTES_MAX = 256 * 1024**3  # one file that a program writes
PROCESSES_MAX = 4096
LOG_NAME = "log"
WORK_NAME = "work"
SNAPSHOTS_NAME = "snapshots"  # what was taken out of the program's reach, on its way to the server
PREAMBLE_NAME = "preamble"
MARKER = "SOUK_LEASE_ID"
OWNER = "SOUK_AGENT_LEASES"  # which agent of this machine started it: the folder of its leases


@dataclass(frozen=True)
class LaunchSpec:
    """Everything that is needed to start one program."""

    lease_id: UUID
    folder: Path  # the lease's folder; the program sees only the work folder in it
    argv: list[str]
    env: dict[str, str] = field(repr=False)
    cores: list[int] = field(default_factory=list)
    gpu_uuids: list[str] = field(default_factory=list)
    memory_mib_max: int = 0  # 0: the node's own limit
    memory_mib_share: int = 0  # its part of the node's memory; of an executor without a limit, what is fair
    image: str = ""
    image_registries: tuple[str, ...] | None = None  # from which a customer's may come; None: the provider's own image
    shm_mib: int = 0  # the size of /dev/shm; 0: as the executor has it
    cpus_max: float = 0.0  # processor time, in cores; 0: whatever `cores` names, or all
    disk_mib_max: int = 0  # of the lease's own disk; 0: it has none
    overlay: Overlay | None = None  # the network of its gang; the program gets its interface right after the start
    has_egress: bool = False  # it may reach public addresses
    shared_folders: dict[str, str] = field(default_factory=dict)  # label -> folder of this node, to read only
    cache: Path | None = None  # what earlier jobs of its customer left on this node, to read only
    private: Path | None = None  # the agent's own folder, with its keys: of it the program sees its lease's alone
    readable: tuple[Path, ...] = ()  # but these of it too

    @property
    def work(self) -> Path:
        """The folder that the program may write to."""
        return self.folder / WORK_NAME


@dataclass(frozen=True)
class Exit:
    """How a program ended: an exit code, a signal, or without a trace."""

    code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    lease_expired: bool = False  # stopped because its lease ran out while no agent was there
    vanished: bool = False
    message: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For the journal."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Exit:
        """From the journal, or from a supervisor's file."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


Handle = dict[str, Any]  # JSON; what the executor needs to find the program again
ReportEvent = Callable[..., None]  # (event, **data): a line among the job's events


class Executor(Protocol):
    """One way to run programs on this node."""

    name: str

    async def check(self) -> str:
        """The engine's version; raises ExecutorFailed when programs cannot be run."""

    def seen_work(self, spec_folder: Path) -> str:
        """The path by which the program sees its work folder."""

    def python(self) -> str:
        """The interpreter that has the runtimes, as the program sees it."""

    async def python_base(self, image: str) -> str:
        """A text that changes whenever a Python environment, made above the interpreter of programs here, may become
        another one; empty where that is not known. `image`: of a container, which is here already.
        """

    def environment(self, seen_work: str) -> dict[str, str]:
        """Variables that every program is given, unless the customer sets them; never the agent's own."""

    def seen_shared_folders(self, spec_folder: Path) -> str:
        """The folder in which the program sees the shared host folders, by their labels."""

    def seen_cache(self, cache: Path) -> str:
        """The path by which the program sees the entries of its customer."""

    def isolation(self, *, has_gpus: bool) -> Literal["none", "runc", "gvisor"]:
        """The isolation between programs and this node's kernel; known once `check` was called."""

    @property
    def has_egress(self) -> bool:
        """Whether programs here may reach public addresses; known once `check` was called."""

    def shm_mib(self, memory_mib: int) -> int:
        """MiB of /dev/shm that programs can have together, where they share so much memory."""

    def gang(self, *, has_gpus: bool) -> GangKind:
        """How programs here reach those of other nodes; known once `check` was called."""

    def why_no_gang(self, *, has_gpus: bool) -> str:
        """Why they cannot; empty when they can. Known once `check` was called."""

    async def why_no_serving(self, image: str, *, has_gpus: bool) -> str:
        """Why programs here cannot serve models (from `image`, in containers); empty when they can.

        Looked at anew with each call, once `check` was called.
        """

    async def why_no_evaluation(self, image: str) -> str:
        """Why programs here cannot evaluate models (in `image`, for containers); empty when they can.

        The harness is large, so it is optional. Looked at anew with each call, once `check` was called.
        """

    async def sweep(self) -> None:
        """Remove what earlier agents left behind and no program uses. Called when nothing is being started."""

    async def make_room(self, folder: Path, *, disk_share: float) -> int:
        """Prepare a lease's folder for `disk_share` of the node's disk; MiB, 0 where that cannot be held to."""

    async def remove_room(self, folder: Path) -> None:
        """Undo what `make_room` made; no process of the program may run any more. Repeating it changes nothing."""

    def describe(self, spec: LaunchSpec) -> list[str]:
        """Limits and permissions of a program, a line each; empty where there are none."""

    async def ready(self, spec: LaunchSpec, report_event: ReportEvent) -> None:
        """Have here what the program needs (its image). May be cancelled. Raises ImageUnavailable, ExecutorFailed."""

    async def start(self, spec: LaunchSpec) -> Handle:
        """Start the program; raises ExecutorFailed or ImageUnavailable, and then nothing is left running."""

    async def adopt(self, lease_id: UUID, folder: Path, handle: Handle | None) -> Handle | None:
        """Find a program that an earlier agent started; None when it never was, or has left no trace."""

    async def poll(self, handle: Handle) -> Exit | None:
        """How the program ended, or None while it runs."""

    async def extend(self, handle: Handle, seconds: float) -> None:
        """The lease lasts `seconds` from now; an executor that can stops the program by itself after that."""

    async def regroup(self, handle: Handle, overlay: Overlay | None) -> None:
        """Change the members of a running program's gang; `overlay`: the same lease's, with others in it. Raises
        ExecutorFailed or OSError; repeating it is harmless."""

    def give(self, path: Path) -> None:
        """Let the program own a file, or a folder with all in it, that lies out of its reach still. Blocks."""

    async def stop(self, handle: Handle) -> None:
        """Ask the program to end (SIGTERM)."""

    async def kill(self, handle: Handle) -> None:
        """End every process of the program now (SIGKILL)."""

    async def find_strays(self, leases: Path) -> list[UUID]:
        """Leases below `leases` whose programs are here though this agent neither started nor adopted them."""

    async def kill_stray(self, lease_id: UUID) -> None:
        """End every process of such a lease and remove what the engine keeps of it."""

    async def cleanup(self, handle: Handle) -> None:
        """Remove what the executor keeps of an ended program; its folder stays. Repeating it changes nothing."""

    async def close(self) -> None:
        """Let go of every program; they go on, and the next agent adopts them."""


def log_path(folder: Path) -> Path:
    """Where a lease's standard output and error are."""
    return folder / LOG_NAME


def write_preamble(folder: Path, lines: list[str]) -> None:
    """Begin a lease's log with these lines, once: bytes that may have been sent never change."""
    path = folder / PREAMBLE_NAME
    if not lines or path.exists():
        return
    text = "".join(f"[souk] {line}\n" for line in lines).encode()
    write_atomically(path, text)
    with log_path(folder).open("ab") as log:
        log.write(text)


def append_to_log(folder: Path, lines: list[str]) -> None:
    """End a lease's log with these lines, after its program has; nothing where the log is full."""
    text = "".join(f"[souk] {line}\n" for line in lines).encode()
    with log_path(folder).open("ab") as log:
        if log.tell() + len(text) <= LOG_BYTES_MAX:
            log.write(text)


def preamble_bytes(folder: Path) -> int:
    """How many bytes of a lease's log are the agent's own."""
    try:
        return (folder / PREAMBLE_NAME).stat().st_size
    except FileNotFoundError:
        return 0
