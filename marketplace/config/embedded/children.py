"""A child process that cannot outlive its parent: the kernel signals it when the starting thread ends."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from marketplace.config.embedded.errors import ChildFailed, EmbeddedError

PR_SET_PDEATHSIG = 1
LOG_TAIL_BYTES = 4096
LOG_TAIL_LINES = 12
POLL_SECONDS = 0.05

# Loaded before any fork: the child may not allocate or import between fork and exec.
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Recipe:
    """How one child is started and stopped, and the signal that it gets when its parent ends."""

    name: str
    command: Sequence[str]
    log: Path
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    sockets: Sequence[socket.socket] = ()  # inherited by number; they are open as long as the recipe exists
    user: tuple[int, int] | None = None  # uid, gid; None: as the parent
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    stop_seconds: float = 10.0


@dataclass
class Child:
    """One started recipe. Start it from a thread that lives as long as the child should."""

    recipe: Recipe
    process: subprocess.Popen[bytes]
    started_at: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def ask_to_stop(self) -> None:
        """Send the stop signal to the child's leader; it stops its own children."""
        if self.is_alive():
            self.process.send_signal(self.recipe.stop_signal)

    def wait_or_kill(self, seconds: float | None = None) -> int:
        """The exit status, after at most `stop_seconds`; then the whole process group is killed."""
        try:
            return self.process.wait(self.recipe.stop_seconds if seconds is None else seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.wait()

    def kill(self) -> None:
        """SIGKILL for the child's whole process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def stop(self) -> int:
        """Ask, wait, and kill if it must be."""
        self.ask_to_stop()
        return self.wait_or_kill()

    def last_lines(self) -> str:
        """The end of the child's log, for the person who has to find out why it failed."""
        return last_lines(self.recipe.log)


def start(recipe: Recipe) -> Child:
    """Start a child in a process group of its own, its output appended to its log; it ends with this thread."""
    uid, gid = recipe.user or (None, None)
    with recipe.log.open("ab") as log:
        try:
            process = subprocess.Popen(  # noqa: S603  the command is ours
                list(recipe.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(recipe.env) if recipe.env is not None else None,
                cwd=recipe.cwd,
                pass_fds=[each.fileno() for each in recipe.sockets],
                user=uid,
                group=gid,
                extra_groups=[] if recipe.user else None,
                # A group of its own: Ctrl-C at the terminal reaches the parent alone, which stops all in order.
                start_new_session=True,
                preexec_fn=dying_with_parent(recipe.death_signal),  # noqa: PLW1509  no threads are running when children start
            )
        except OSError as error:
            raise ChildFailed(f"{recipe.name} could not be started: {error}.") from error
    return Child(recipe, process)


def dying_with_parent(death_signal: signal.Signals) -> Callable[[], None]:
    """A `preexec_fn`: the kernel sends the signal when the thread that started the child ends."""
    parent = os.getpid()

    def die_with_parent() -> None:
        # Popen calls it after the change of user, which would clear the setting; a parent that died in between is
        # seen by its pid.
        if _libc.prctl(PR_SET_PDEATHSIG, int(death_signal)) != 0 or os.getppid() != parent:
            os._exit(111)

    return die_with_parent


def wait_until(child: Child, is_ready: Callable[[], bool], *, seconds: float) -> None:
    """Return when `is_ready()` is true; raises ChildFailed with the end of the log if it ends or is never ready."""
    deadline = time.monotonic() + seconds
    while not is_ready():
        if not child.is_alive():
            status = child.process.returncode
            raise ChildFailed(
                f"{child.recipe.name} ended with status {status} while starting; see {child.recipe.log}.",
                details=child.last_lines(),
            )
        if time.monotonic() > deadline:
            child.kill()
            raise ChildFailed(
                f"{child.recipe.name} was not ready after {seconds:.0f} s; see {child.recipe.log}.",
                details=child.last_lines(),
            )
        time.sleep(POLL_SECONDS)


def last_lines(log: Path) -> str:
    """At most LOG_TAIL_LINES lines from the end of a log; empty if there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])


def package_folder(name: str) -> Path:
    """Where an installed package lies, without importing it: we want the programs that it brings, not its wrapper."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise EmbeddedError(f"The package {name} is not installed: pip install 'gpusouk[server]'.")
    return Path(found.origin).resolve().parent
