"""An engine's end is always known, with its cause; nothing of an engine outlives its replica."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from runtimes.serve.engines.base import Launch
from runtimes.serve.errors import OutOfMemory, ServeError
from runtimes.serve.process import EngineProcess

SLEEPS = "import time; time.sleep(60)"
HAS_CHILD = "import subprocess, sys, time; print(subprocess.Popen([sys.executable, '-c', {!r}]).pid, flush=True); {}"


def run(code: str, folder: Path, then: Callable[[EngineProcess], Awaitable[None]]) -> None:
    async def scene() -> None:
        process = await EngineProcess.start(Launch([sys.executable, "-c", code]), folder)
        try:
            await then(process)
        finally:
            await process.stop(is_sane=True)

    asyncio.run(scene())


def is_gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]:
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("import sys; print('no kernel'); sys.exit(3)", ServeError, "ended with exit code 3: no kernel"),
        ("import sys; sys.exit('torch.OutOfMemoryError: CUDA out of memory.')", OutOfMemory, "ran out of memory"),
        ("import os; os.kill(os.getpid(), 11)", ServeError, "was killed by signal 11"),
    ],
)
def test_cause_of_an_end_is_named(tmp_path: Path, code: str, kind: type[ServeError], message: str) -> None:
    async def then(process: EngineProcess) -> None:
        error = await process.why_ended()
        assert type(error) is kind
        assert message in str(error)

    run(code, tmp_path / "engine", then)


def test_stop_ends_the_whole_group(tmp_path: Path) -> None:
    code = (
        HAS_CHILD.format(SLEEPS, SLEEPS)
        .replace("print(", "open('child', 'w').write(str(")
        .replace(", flush=True)", "))")
    )
    folder = tmp_path / "engine"

    async def then(process: EngineProcess) -> None:
        async with asyncio.timeout(30):
            while not (folder / "child").exists() or not (folder / "child").read_text():
                await asyncio.sleep(0.02)

    run(code, folder, then)
    assert is_gone(int((folder / "child").read_text()))


def test_killed_runtime_takes_its_engine_along(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom runtimes.serve.engines.base import Launch\n"
        "from runtimes.serve.process import EngineProcess\n"
        "async def main():\n"
        f"    process = await EngineProcess.start(Launch([sys.executable, '-c', {SLEEPS!r}]), Path('engine'))\n"
        "    print(process._process.pid, flush=True)\n"
        "    await process.ended\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    runtime = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    assert runtime.stdout is not None
    pid = int(runtime.stdout.readline())
    runtime.send_signal(signal.SIGKILL)
    runtime.wait()
    runtime.stdout.close()
    assert is_gone(pid)
