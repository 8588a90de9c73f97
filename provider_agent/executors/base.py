"""What every executor promises. `tests/contracts/executors` holds each implementation to it.

- A program that was started goes on when the agent ends, and `adopt` finds it again.
- Standard output and error are in `log_path(folder)`, up to LOG_BYTES_MAX and with a last line that says so.
- `poll` never invents an exit: a program that cannot be found any more has `vanished`.
- After `kill` no process of the program is left, also none that it detached.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

LOG_BYTES_MAX = 64 * 1024 * 1024
LOG_CAP_LINE = "\n[souk] the log reached its limit of 64 MiB; what follows was dropped\n"
FILE_BYTES_MAX = 256 * 1024**3  # one file that a program writes
PROCESSES_MAX = 4096
LOG_NAME = "log"
WORK_NAME = "work"
MARKER = "SOUK_LEASE_ID"


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
    image: str = ""
    needs_network: bool = False

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


class Executor(Protocol):
    """One way to run programs on this node."""

    name: str

    async def check(self) -> str:
        """The engine's version; raises ExecutorFailed when programs cannot be run."""

    def seen_work(self, spec_folder: Path) -> str:
        """The path by which the program sees its work folder."""

    def python(self) -> str:
        """The interpreter that has the runtimes, as the program sees it."""

    def environment(self, seen_work: str) -> dict[str, str]:
        """Variables that every program is given, unless the customer sets them; never the agent's own."""

    async def start(self, spec: LaunchSpec) -> Handle:
        """Start the program; raises ExecutorFailed or ImageUnavailable, and then nothing is left running."""

    async def adopt(self, lease_id: UUID, folder: Path, handle: Handle | None) -> Handle | None:
        """Find a program that an earlier agent started; None when it never was, or has left no trace."""

    async def poll(self, handle: Handle) -> Exit | None:
        """How the program ended, or None while it runs."""

    async def extend(self, handle: Handle, seconds: float) -> None:
        """The lease lasts `seconds` from now; an executor that can stops the program by itself after that."""

    async def stop(self, handle: Handle) -> None:
        """Ask the program to end (SIGTERM)."""

    async def kill(self, handle: Handle) -> None:
        """End every process of the program now (SIGKILL)."""

    async def cleanup(self, handle: Handle) -> None:
        """Remove what the executor keeps of an ended program; its folder stays. Repeating it changes nothing."""

    async def close(self) -> None:
        """Let go of every program; they go on, and the next agent adopts them."""


def log_path(folder: Path) -> Path:
    """Where a lease's standard output and error are."""
    return folder / LOG_NAME
