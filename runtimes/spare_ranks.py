"""Ranks that are forked before there is anything to train: what a training imports is loaded once a node.

A rank that loads torch and transformers by itself computes for seconds, beside all others of its node, once torchrun
has started it. So the launcher loads them, while the node waits for nobody yet or while a lost node is replaced, and
forks one process for each device before it has touched one, and before it has threads but OpenBLAS', which ends its own
at a fork. Each then waits for its environment and arguments, and becomes the rank. Where a fork would not do (an
imported module has asked the driver for devices), fails or has ended, torchrun starts its rank as ever. Those that are
not needed end with their launcher. A SIGTERM that comes meanwhile is kept for the rank.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from runtimes.contract import Env, ExitCode
from runtimes.generations import die_with_parent

MODULE = "runtimes.train"  # the only one that ranks are forked for
COMMAND = (sys.executable, "-u", "-m", MODULE)  # as torchrun begins a rank's
# What a rank imports once it has read its configuration; then what the models of all families import.
LOADED = (
    "runtimes.train.loop",
    "transformers.modeling_layers",
    "transformers.models.auto.modeling_auto",
    "transformers.generation",
)
NAME = "souk-rank"  # what `top` and `ps -o comm` show; their command lines are the launcher's
READY = b"r"
ORDER_BYTES_MAX = 4 << 20  # an environment and arguments; the kernel gives a program less
POLL_SECONDS = 0.05
ANSWER_SECONDS_MAX = 60.0  # of a fork, for what takes milliseconds
PR_SET_NAME = 15  # Linux, prctl(2)


class ForkedRank:
    """A process that waits to become a rank; torchrun's view of it is that of a `subprocess.Popen`."""

    def __init__(self, pid: int, line: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.line: socket.socket | None = line

    def become(self, arguments: Sequence[str], env: Mapping[str, str]) -> bool:
        """Give it its environment and arguments; False where it has ended."""
        if self.line is None or self.poll() is not None:
            return False
        order = json.dumps({"arguments": list(arguments), "environment": dict(env)})
        with self.line as line:
            self.line = None
            try:
                line.sendall(order.encode() + b"\n")
            except OSError:
                return False
        return True

    def release(self) -> None:
        """It is not needed: it ends."""
        if self.line is not None:
            self.line.close()
            self.line = None

    def poll(self) -> int | None:
        """As Popen's: the exit code, a signal as its negative number, None as long as it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """As Popen's."""
        give_up_at = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if give_up_at is not None and time.monotonic() > give_up_at:
                raise subprocess.TimeoutExpired(COMMAND, timeout or 0)
            time.sleep(POLL_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        """As Popen's."""
        if self.poll() is None:
            os.kill(self.pid, number)


class SpareRanks:
    """One waiting process for each device of this node."""

    def __init__(self, count: int) -> None:
        self._waiting: list[ForkedRank] = []
        for _ in range(count):
            rank = self._fork()
            if rank is None:
                break
            self._waiting.append(rank)

    def take(self, command: Sequence[str], env: Mapping[str, str]) -> ForkedRank | None:
        """A waiting process as the rank of this command and environment; None where it has to be started."""
        if tuple(command[: len(COMMAND)]) != COMMAND:
            return None
        while self._waiting:
            rank = self._waiting.pop()
            if rank.become(command[len(COMMAND) :], env):
                return rank
        return None

    def serve_torchrun(self) -> None:
        """Have this process' torchrun take its ranks from here."""
        from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

        api: Any = importlib.import_module("torch.distributed.elastic.multiprocessing.api")  # it names no public seam
        spares = self

        class Handler(SubprocessHandler):
            def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> Any:
                rank = None if self._stdout or self._stderr else spares.take(args, env)
                return super()._popen(args, env) if rank is None else rank

        api.get_subprocess_handler = Handler

    def _fork(self) -> ForkedRank | None:
        """One more; None where a fork would not do."""
        ours, theirs = socket.socketpair()
        ours.settimeout(ANSWER_SECONDS_MAX)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        try:
            parent, pid = os.getpid(), os.fork()
        except OSError:  # no more processes, or no memory that a fork could promise: an ordinary start needs less
            ours.close()
            theirs.close()
            return None
        if pid == 0:
            _wait_to_become(theirs, parent, [ours, *(each.line for each in self._waiting)])
        theirs.close()
        rank = ForkedRank(pid, ours)
        with contextlib.suppress(OSError):
            if ours.recv(1) == READY:
                return rank
        rank.release()
        rank.send_signal(signal.SIGKILL)
        rank.wait()
        return None


def start_spares(env: Mapping[str, str], module: str) -> SpareRanks | None:
    """Those of our training; None for any other program, and where what a training imports cannot be loaded."""
    if module != MODULE or sys.platform != "linux":  # elsewhere torch does not survive a fork
        return None
    count = int(env.get(Env.DEVICES_PER_NODE) or 1)
    if count > 1:  # as torchrun does for its ranks; libraries read it when they are loaded
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        load()
    except Exception:  # whatever is wrong with what is installed: a rank says so, in its own words
        return None
    return SpareRanks(count)


def load() -> None:
    """Import what a rank does."""
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()  # what is loaded stays: a collection would write to every page of it, in each rank


def _wait_to_become(line: socket.socket, parent: int, others: Sequence[socket.socket | None]) -> NoReturn:
    """In the fork: wait for the order, become the rank, and never return into the launcher's code.

    `others` are the launcher's ends of all lines, which have to close with the launcher's end.
    """
    code = int(ExitCode.INTERNAL)
    try:
        for other in others:
            if other is not None:
                other.close()
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until the rank has its handler
        ctypes.CDLL(None).prctl(PR_SET_NAME, NAME.encode(), 0, 0, 0)
        die_with_parent()
        if os.getppid() == parent and not _has_bad_fork():
            line.sendall(READY)
            with line, line.makefile("rb") as reader:
                order = reader.readline(ORDER_BYTES_MAX)
            code = _become(json.loads(order)) if order.endswith(b"\n") else 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _become(order: Mapping[str, Any]) -> int:
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = [MODULE, *order["arguments"]]
    for stream in (sys.stdout, sys.stderr):
        # As by COMMAND's -u, line by line: what was printed is not lost when the rank is killed.
        getattr(stream, "reconfigure", lambda **_: None)(line_buffering=True)
    try:
        runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, int | None):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    return 0


def _has_bad_fork() -> bool:
    """Whether the launcher has asked CUDA for devices, so that this process could not use one."""
    import torch

    return bool(torch.cuda._is_in_bad_fork())
