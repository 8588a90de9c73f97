"""`python -m MODULE` whose interpreter has loaded torch and transformers already: seconds less of every program of ours
that a test starts.

A process loads them once for each process of tests, and forks every program. A program is a child of whoever asked for
it, with a pid, a session and pipes of its own, so that waiting, signals and exit codes are those of any other. What
is started cold, by `subprocess` or by an agent, shows that the imports themselves work.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtimes import spare_ranks
from runtimes.contract import Env
from runtimes.generations import PR_SET_CHILD_SUBREAPER

REQUEST_BYTES_MAX = 1 << 20
REPOSITORY = str(Path(__file__).parents[1])
OWN_VARIABLES = "SOUK_"  # what programs read when they run, never when they are imported
# An evaluation chooses kernels before it loads torch.
MODULES = ("runtimes.train", "runtimes.launch")
PARENT_SECONDS_MAX = 60.0


def environment() -> dict[str, str]:
    """What a program has, but for the variables of Souk's own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
    return {**inherited, "OMP_NUM_THREADS": "1", "PYTHONPATH": REPOSITORY}


def start(command: list[str], *, env: Mapping[str, str], **how: Any) -> subprocess.Popen[Any]:
    """Popen for `[sys.executable, "-m", MODULE, ...]`; cold where a library might read another environment, and for
    CUDA, which some libraries ask for devices when they are imported."""
    assert command[:2] == [sys.executable, "-m"]
    theirs = {name: value for name, value in env.items() if not name.startswith(OWN_VARIABLES)}
    is_warm = command[2] in MODULES and theirs == environment() and env.get(Env.DEVICE_KIND) != "cuda"
    if sys.platform != "linux" or not is_warm:
        return subprocess.Popen(command, env=env, **how)
    return WarmPopen(command, env=env, **how)


class WarmPopen(subprocess.Popen[Any]):
    """A program that was forked, not executed."""

    def _execute_child(self, *given: Any, **named: Any) -> None:
        of_popen: Any = subprocess.Popen
        asked = inspect.signature(of_popen._execute_child).bind(self, *given, **named).arguments
        with Path(os.devnull).open("rb") as nothing:
            streams = [
                nothing.fileno() if asked["p2cread"] == -1 else asked["p2cread"],
                1 if asked["c2pwrite"] == -1 else asked["c2pwrite"],
                2 if asked["errwrite"] == -1 else asked["errwrite"],
            ]
            self.pid = forker().fork(
                {
                    "arguments": list(asked["args"])[2:],
                    "environment": dict(asked["env"]),
                    "folder": str(asked["cwd"] or Path.cwd()),
                    "parent": os.getpid(),
                    "start_new_session": bool(asked["start_new_session"]),
                },
                streams,
            )
        self._child_created = True
        untyped: Any = self
        untyped._close_pipe_fds(*(asked[f"{name}{end}"] for name in ("p2c", "c2p", "err") for end in ("read", "write")))


class Forker:
    """The process that has loaded everything, started when it is first asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
            env=environment(),
            cwd=REPOSITORY,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self.pid = os.getpid()
        atexit.register(self._line.close)

    def fork(self, order: Mapping[str, Any], streams: list[int]) -> int:
        """The pid of a new child of this process."""
        with self._lock:
            _adopt_orphans(True)
            try:
                socket.send_fds(self._line, [json.dumps(order).encode()], streams)
                answer = self._line.recv(64)
            finally:
                _adopt_orphans(False)
        assert answer, "the process that forks programs has ended"
        return int(answer)


_forkers: list[Forker] = []


def forker() -> Forker:
    """This process' own."""
    if not _forkers or _forkers[-1].pid != os.getpid():
        _forkers.append(Forker())
    return _forkers[-1]


def _adopt_orphans(is_on: bool) -> None:
    """While it is on, a grandchild whose parent ended is this process' child."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0)


def main() -> None:
    """Load, then fork a program for each order, until whoever asks has ended."""
    line = socket.socket(fileno=int(sys.argv[1]))
    spare_ranks.load()
    for name in ("peft", "torch.distributed.run", "transformers.models.llama.modeling_llama"):
        importlib.import_module(name)
    gc.freeze()
    while True:
        message, streams, _, _ = socket.recv_fds(line, REQUEST_BYTES_MAX, 3)
        if not message:
            return
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            program = os.fork()
            if program != 0:
                os.write(writer, str(program).encode())
                os._exit(0)  # the program is its grandparent's parent's now
            for number in (reader, writer):
                os.close(number)
            line.close()
            return _become(json.loads(message), streams)
        os.close(writer)
        os.waitpid(between, 0)
        for number in streams:
            os.close(number)
        line.sendall(os.read(reader, 64))
        os.close(reader)


def _become(order: Mapping[str, Any], streams: list[int]) -> None:
    give_up_at = time.monotonic() + PARENT_SECONDS_MAX
    while os.getppid() != order["parent"]:
        if time.monotonic() > give_up_at:  # whoever asked has ended
            os._exit(1)
        time.sleep(0.001)
    if order["start_new_session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    module, *arguments = order["arguments"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
