"""Who is to blame where the kernel ends a program of the process executor, which has no limit on memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provider_agent.executors import process_supervisor

MIB = 1024 * 1024
EATS = "import os, signal, time; data = b'x' * {mib} * 2**20; time.sleep(1); {end}"
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
OF_A_RANK = "os._exit(137)"  # as runtimes.launch names it


def end_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, share_mib: int, kills: int, mib: int = 200, end: str = KILLED
) -> dict[str, Any]:
    """How a program ended that had `mib`, while the kernel ended so many processes."""
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("pgfault 12\noom_kill 3\n")
    monkeypatch.setattr(process_supervisor, "VMSTAT", vmstat)
    monkeypatch.setattr(process_supervisor, "WATCH_SECONDS", 0.1)
    monkeypatch.setattr(process_supervisor, "reap_orphans", lambda _: None)  # the test has children of its own
    reader, writer = os.pipe()
    log = process_supervisor.Log(tmp_path / "log", 1000, "full")
    program = subprocess.Popen([sys.executable, "-c", EATS.format(mib=mib, end=end)], stdout=writer)
    os.close(writer)
    memory = process_supervisor.memory_bytes

    def and_then_the_kernel_ends_some(limit_bytes: int) -> int:
        vmstat.write_text(f"pgfault 99\noom_kill {3 + kills}\n")
        return memory(limit_bytes)

    monkeypatch.setattr(process_supervisor, "memory_bytes", and_then_the_kernel_ends_some)
    launch = {"memory_mib_max": 0, "memory_mib_share": share_mib, "grace_seconds": 1}
    try:
        return process_supervisor.watch(program, reader, log, launch, tmp_path)
    finally:
        os.close(reader)
        program.wait()


@pytest.mark.parametrize("end", [KILLED, OF_A_RANK])
def test_a_program_that_took_more_than_its_part_ran_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    assert end_of(tmp_path, monkeypatch, share_mib=100, kills=1, end=end)["out_of_memory"] is True


@pytest.mark.parametrize(
    ("share_mib", "kills", "end"),
    [
        (100_000, 1, KILLED),  # it had taken less than its part: somebody else had too much
        (100, 0, KILLED),  # the kernel ended nothing: somebody at the node did
        (0, 1, KILLED),  # a lease of an agent from before
        (100, 1, "os._exit(1)"),  # it ended by itself
    ],
)
def test_other_ends_are_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share_mib: int, kills: int, end: str
) -> None:
    assert "out_of_memory" not in end_of(tmp_path, monkeypatch, share_mib=share_mib, kills=kills, end=end)


FORKS = """
import os, sys, time
from provider_agent.executors import process_supervisor
reader, writer = os.pipe()
if os.fork() == 0:
    held = b"x" * {mib} * 2**20
    for _ in range(3):
        if os.fork() == 0:
            break
    os.write(writer, b"r")
    time.sleep(60)
    os._exit(0)
while len(process_supervisor.descendants()) < 4 or len(os.read(reader, 1)) < 1:
    time.sleep(0.05)
time.sleep(0.2)
found = [process_supervisor.memory_bytes(limit) // 2**20 for limit in (10**15, 300 * 2**20)]
print(*found, flush=True)
os.killpg(0, 9)
"""


def test_what_forks_share_is_counted_once_where_that_decides() -> None:
    """A launcher and the ranks that were forked from it, near a limit."""
    program = FORKS.format(mib=200)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True) as ended:
        quick, exact = map(int, ended.communicate(timeout=60)[0].split())
    assert quick > 4 * 200
    assert 200 <= exact < 300
