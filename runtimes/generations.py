"""Generations of a gang: when a node is lost, or the gang has another size, the others keep their containers and go on
with whoever is in it then.

The agent writes `gang.json` into the work folder, first that another generation is coming, then its number, where its
ranks meet, and the checkpoint to go on from. This process outlives the ranks: it ends those of the generation before
and starts the new. What it has joined stands in `.gang-joined`, by which the agent sees that it follows at all.

A rank that lost its peer ends by an error or an abort, or hangs. So after such an end the next generation is waited
for, and while ranks run it is looked for too. That a peer was lost stands in `.gang-lost-peer`: the agent reports it,
and the marketplace asks all nodes of the gang for a beat. Meanwhile the next generation's launcher and ranks load
torch: they take the memory that the ended ranks had. A node that joins a gang which grows begins like that: it has no
ranks before the next generation. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtimes.contract import (
    GANG_FILE,
    GANG_FILE_BYTES_MAX,
    JOINED_FILE,
    LOST_PEER_FILE,
    SIZES_FILE,
    Env,
    ExitCode,
    checkpoint_step,
)

# From the loss of a peer until another one is coming: its node is missed, or has shipped its last checkpoint (two
# minutes), and another one is looked for (30 s). Who is not to wait so long is stopped by the marketplace.
WAIT_SECONDS_MAX = 240.0
JOIN_SECONDS_MAX = 7200.0  # of who joins: the marketplace gives up sooner
COMING_SECONDS_MAX = 3600.0  # from then on: the agent fetches a checkpoint, which may be large
ORPHANS_SECONDS_MAX = 30.0
POLL_SECONDS = 0.2
SIGNAL_CODE_BASE = 128
# How ranks end that lost a peer: by gloo's error, by NCCL's abort; or all have left because one was asked to.
LOST_PEER_CODES = frozenset({int(ExitCode.LOST_PEER), SIGNAL_CODE_BASE + signal.SIGABRT, int(ExitCode.STOPPED)})
# What a generation changes of the environment; nothing else is the file's to set.
CHANGING = (Env.MASTER_ADDR, Env.MASTER_PORT, Env.RESUME_FROM)
PLACE = (Env.NODES, Env.NODE_RANK, Env.ADDRESS)  # an agent from before gangs had other sizes leaves these out
AWAITING = "SOUK_AWAITS_GENERATION"  # of a child that is started before its generation is known
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # Linux, prctl(2)


@dataclass(frozen=True)
class Generation:
    """One generation: its number, what it changes of the environment, and the step that it goes on from."""

    number: int
    environment: Mapping[str, str]
    resumed_step: int  # 0: it begins anew


class GangFile:
    """What the agent has announced of generations after `number`."""

    def __init__(self, work: Path, number: int) -> None:
        body = _read(work / GANG_FILE)
        self.newer = _generation(body, number)
        coming = body.get("coming")
        self.is_coming = self.newer is None and isinstance(coming, int) and coming > number


class Launcher:
    """Runs an interpreter with `arguments`, once for each generation."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        self._arguments, self._env = arguments, env
        self._work, self._checkpoints = Path(env[Env.WORK_DIR]), Path(env[Env.CHECKPOINT_DIR])
        self._current = Generation(int(env[Env.GENERATION]), {}, 0)
        self._child: subprocess.Popen[bytes] | None = None
        self._next: subprocess.Popen[bytes] | None = None  # waits for the next generation, with torch loaded
        self._stop: int | None = None  # the signal by which the program was asked to end

    def run(self) -> int:
        """The last generation's exit code. SIGTERM is handed on; no other generation is waited for afterwards."""
        adopt_orphans()
        signal.signal(signal.SIGTERM, self._hand_on)
        (self._work / SIZES_FILE).write_text("1")
        (self._work / JOINED_FILE).write_text(str(self._current.number))
        if self._env.get(Env.JOINS_NEXT):
            first = self._wait_to_join()
            if first is None:
                return int(ExitCode.LOST_PEER)
            self._join(first)
        while True:
            code, newer = self._run_ranks()
            if newer is None and code in LOST_PEER_CODES and self._stop is None:
                newer = self._wait()
            if self._stop is not None:
                return code
            if newer is None:  # nobody had asked this node to stop: its ranks left with another one's
                return int(ExitCode.LOST_PEER) if code == ExitCode.STOPPED else code
            self._join(newer)

    def _run_ranks(self) -> tuple[int, Generation | None]:
        """One generation's exit code, and the newer one that is to follow, if it was announced meanwhile."""
        child = self._take_next() or self._start({**self._env, **self._current.environment, Env.GENERATION: ""})
        self._child = child
        if self._stop is not None:  # it came before there was a child
            child.send_signal(self._stop)
        newer = None
        while child.poll() is None and newer is None:
            time.sleep(POLL_SECONDS)
            newer = self._announced().newer
        if child.returncode is None:
            child.kill()
            child.wait()
        end_orphans()
        code = child.returncode if child.returncode >= 0 else SIGNAL_CODE_BASE - child.returncode
        # Once more: it may have been announced in the ranks' last moment.
        return code, None if code == ExitCode.OK else newer or self._announced().newer

    def _wait(self) -> Generation | None:
        """The next generation, for ranks that may have lost a peer; None where none comes, or the program is to end."""
        with contextlib.suppress(OSError):  # a full disk: then the lost node is missed later
            (self._work / LOST_PEER_FILE).write_text(str(self._current.number))  # its agent reports it at once
        _say(f"A peer may be lost: waiting {WAIT_SECONDS_MAX:.0f} s for another one.")
        return self._await_next(WAIT_SECONDS_MAX)

    def _wait_to_join(self) -> Generation | None:
        """The generation in which this node joins the gang; None where it does not, or the program is to end."""
        _say("Waiting to join a gang that grows.")
        return self._await_next(JOIN_SECONDS_MAX)

    def _await_next(self, seconds: float) -> Generation | None:
        """The next generation, whose ranks load torch meanwhile; None where none is announced in so many seconds."""
        self._next = self._start({**self._env, Env.GENERATION: "", AWAITING: "1"}, stdin=subprocess.PIPE)
        began = time.monotonic()
        while self._stop is None:
            found = self._announced()
            if found.newer is not None:
                return found.newer
            if time.monotonic() - began > (COMING_SECONDS_MAX if found.is_coming else seconds):
                break
            time.sleep(POLL_SECONDS)
        return None

    def _start(self, env: Mapping[str, str], *, stdin: int | None = None) -> subprocess.Popen[bytes]:
        # This process has one thread, so its child may run Python before the program is there.
        command = [sys.executable, *self._arguments]
        return subprocess.Popen(command, env=env, stdin=stdin, preexec_fn=die_with_parent)  # noqa: S603, PLW1509

    def _take_next(self) -> subprocess.Popen[bytes] | None:
        """The child that was started in advance, with the present generation's environment; None where it has ended."""
        child, self._next = self._next, None
        if child is None or child.stdin is None:
            return None
        try:
            child.stdin.write(json.dumps(dict(self._current.environment)).encode() + b"\n")
            child.stdin.close()
        except OSError:
            child.kill()
            child.wait()
            return None
        return child

    def _join(self, newer: Generation) -> None:
        forget_beyond(self._checkpoints, newer.resumed_step)
        self._current = newer
        (self._work / JOINED_FILE).write_text(str(newer.number))
        _say(f"Generation {newer.number} of the gang begins at step {newer.resumed_step}.")

    def _announced(self) -> GangFile:
        return GangFile(self._work, self._current.number)

    def _hand_on(self, number: int, _frame: object) -> None:
        self._stop = number
        if self._child is not None:
            self._child.send_signal(number)  # does nothing once it has ended


def await_generation(env: MutableMapping[str, str]) -> bool:
    """In a child that was started before its generation is known: wait for that, and take over what it changes.

    torch's launcher is loaded meanwhile. Returns False where none comes: the parent has ended.
    """
    if not env.pop(AWAITING, ""):
        return True
    importlib.import_module("torch.distributed.run")
    line = sys.stdin.buffer.readline()
    if line.endswith(b"\n"):
        env.update(json.loads(line))
    return line.endswith(b"\n")


def forget_beyond(checkpoints: Path, step: int) -> None:
    """Delete checkpoints of later steps: other nodes lack their part of them, and they are written again."""
    for folder in checkpoints.glob("*"):
        if (checkpoint_step(folder) or 0) > step:
            shutil.rmtree(folder)


def adopt_orphans() -> None:
    """Become the parent of processes whose own one has ended, so that the ranks of a killed launcher are waited for."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """Kill what a generation left, and wait for it: two would fight for devices and ports. One that no signal reaches,
    as in a driver that hangs, is not waited for for ever."""
    until = time.monotonic() + ORPHANS_SECONDS_MAX
    while time.monotonic() < until:
        for child in _children():
            os.kill(child, signal.SIGKILL)
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            time.sleep(POLL_SECONDS / 10)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _children() -> list[int]:
    """Those of this process, which has one thread."""
    own = str(os.getpid())
    try:
        return [int(child) for child in Path(f"/proc/{own}/task/{own}/children").read_text().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            if fields[1] == own:
                found.append(int(folder.name))
        return found


def _read(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            body = json.loads(file.read(GANG_FILE_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _generation(body: Mapping[str, object], after: int) -> Generation | None:
    """The generation that the file holds; None for an older one, and where it is not whole."""
    number, step, environment = (body.get(name) for name in ("generation", "resumed_step", "environment"))
    if not (isinstance(number, int) and isinstance(step, int) and isinstance(environment, dict)) or number <= after:
        return None
    names = [*CHANGING, *(name for name in PLACE if name in environment)]
    if not all(isinstance(environment.get(name), str) for name in names):
        return None
    return Generation(number, {name: environment[name] for name in names}, step)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - into the job's log
