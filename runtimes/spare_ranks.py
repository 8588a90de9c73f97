"""Ranks whose interpreters load torch and the training before there is anything to train.

torchrun starts its ranks once the gang has met, and each of them then loads torch for seconds. So the launcher starts
as many interpreters at once, which load it while the gang meets, or while a lost node is replaced. Each then waits at
its standard input for its environment and arguments, and becomes the rank. None touches a device before. A spare that
has ended is replaced by an ordinary start; those that are not needed end with their launcher, or by the end of input.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from runtimes.contract import Env
from runtimes.generations import die_with_parent

MODULE = "runtimes.train"  # the only one that there are spares for
LOADED = "runtimes.train.loop"  # what it loads once it has read its configuration
COMMAND = (sys.executable, "-u", "-m", MODULE)  # as torchrun begins a rank's


class SpareRanks:
    """One waiting interpreter for each device of this node."""

    def __init__(self, count: int, env: Mapping[str, str]) -> None:
        threads = {"OMP_NUM_THREADS": "1"} if count > 1 and "OMP_NUM_THREADS" not in env else {}  # as torchrun does
        command = [sys.executable, "-u", "-m", "runtimes.spare_ranks"]
        self._waiting = [
            subprocess.Popen(command, env={**env, **threads}, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
            for _ in range(count)
        ]

    def take(self, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
        """A spare as the rank of this command and environment; None where it has to be started."""
        if tuple(command[: len(COMMAND)]) != COMMAND:
            return None
        order = json.dumps({"arguments": list(command[len(COMMAND) :]), "environment": dict(env)})
        while self._waiting:
            spare = self._waiting.pop()
            if spare.poll() is not None or spare.stdin is None:
                continue
            try:
                spare.stdin.write(order.encode() + b"\n")
                spare.stdin.close()
            except OSError:
                continue
            return spare
        return None

    def serve_torchrun(self) -> None:
        """Have this process' torchrun take its ranks from here."""
        from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

        api: Any = importlib.import_module("torch.distributed.elastic.multiprocessing.api")  # it names no public seam
        spares = self

        class Handler(SubprocessHandler):
            def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> Any:
                spare = None if self._stdout or self._stderr else spares.take(args, env)
                return super()._popen(args, env) if spare is None else spare

        api.get_subprocess_handler = Handler


def start_spares(env: Mapping[str, str], module: str) -> SpareRanks | None:
    """Those of our training in a gang; None for any other program, and for one node, whose ranks need not wait."""
    if module != MODULE or int(env.get(Env.NODES) or 1) == 1:
        return None
    return SpareRanks(int(env.get(Env.DEVICES_PER_NODE) or 1), env)


def main() -> None:
    """Load, wait, become the rank."""
    die_with_parent()
    importlib.import_module(LOADED)
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return
    order = json.loads(line)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = [MODULE, *order["arguments"]]
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
