"""One engine's process: started in a folder of its own, the end of its output kept, ended with its whole group."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from runtimes.serve.devices import kills_by_memory
from runtimes.serve.engines.base import Launch
from runtimes.serve.errors import OutOfMemory, ServeError

LINES_KEPT_MAX = 50
LINE_BYTES_MAX = 8192
STOP_SECONDS_MAX = 10.0
PR_SET_PDEATHSIG = 1  # Linux, prctl(2)
OUT_OF_MEMORY_MARKS = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")


class EngineProcess:
    """A started engine. `ended` is set when its first process has ended."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lines: deque[str] = deque(maxlen=LINES_KEPT_MAX)
        self._kills = kills_by_memory()
        self._copying = asyncio.create_task(self._copy_output())
        self.ended = asyncio.create_task(process.wait())

    @classmethod
    async def start(cls, launch: Launch, folder: Path) -> EngineProcess:
        """Start it with `folder`, emptied, as its working directory, which no other user may read."""
        _make_empty(folder)
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            cwd=folder,
            env={**os.environ, **launch.env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=LINE_BYTES_MAX,
            process_group=0,
            preexec_fn=_die_with(os.getpid()),
        )
        return cls(process)

    @property
    def is_alive(self) -> bool:
        """Whether its first process is there, which proves nothing of what it does."""
        return self._process.returncode is None

    async def why_ended(self) -> ServeError:
        """The error that describes how it ended: an engine has no reason to end by itself."""
        code = await self.ended
        await asyncio.wait({self._copying}, timeout=STOP_SECONDS_MAX)
        text = "\n".join(self._lines)
        if kills_by_memory() > self._kills or any(mark in text.lower() for mark in OUT_OF_MEMORY_MARKS):
            return OutOfMemory(f"the engine ran out of memory; take a smaller context or model ({self._last_line()})")
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return ServeError(f"the engine {how}" + (f": {self._last_line()}" if self._lines else ""))

    async def stop(self, *, is_sane: bool) -> None:
        """SIGTERM to its group where it is worth asking, then SIGKILL; nothing of it is left."""
        if is_sane and self.is_alive:
            self._signal(signal.SIGTERM)
            await asyncio.wait({self.ended}, timeout=STOP_SECONDS_MAX)
        self._signal(signal.SIGKILL)
        await self.ended
        self._copying.cancel()

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return

    def _last_line(self) -> str:
        return next((line[:300] for line in reversed(self._lines) if line.strip()), "")

    async def _copy_output(self) -> None:
        """The engine's output is the job's log; its last lines show why it ended."""
        output = self._process.stdout
        while output is not None and (chunk := await output.read(LINE_BYTES_MAX)):
            sys.stderr.buffer.write(chunk)
            sys.stderr.buffer.flush()
            self._lines.extend(chunk.decode(errors="replace").splitlines())


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)


def _die_with(parent: int) -> Callable[[], None] | None:
    """In the new process: have the kernel kill it when the runtime ends, for whatever reason."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # loaded here: nothing may be loaded between fork and exec

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return tie
