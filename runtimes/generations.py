"""Generations of a gang: when a node is lost, the others keep their containers and go on with whoever takes its place.

The agent writes `gang.json` into the work folder: the number of the new generation, where its ranks meet, and the
checkpoint to go on from. This process outlives the ranks: it ends those of the generation before and starts the new.

A rank that lost its peer ends by an error or an abort, or hangs. So after such an end the next generation is waited
for, and while ranks run it is looked for too. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtimes.contract import GANG_FILE, GANG_FILE_BYTES_MAX, JOINED_FILE, Env, ExitCode, checkpoint_step

# From the loss of a peer until the marketplace has missed its node and found another one.
WAIT_SECONDS_MAX = 75.0
POLL_SECONDS = 0.2
SIGNAL_CODE_BASE = 128
# How ranks end that lost a peer: by gloo's error, by NCCL's abort; or all have left because one was asked to.
LOST_PEER_CODES = frozenset({int(ExitCode.INTERNAL), SIGNAL_CODE_BASE + signal.SIGABRT, int(ExitCode.STOPPED)})
# What a generation changes of the environment; nothing else is the file's to set.
CHANGING = (Env.MASTER_ADDR, Env.MASTER_PORT, Env.RESUME_FROM)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # Linux, prctl(2)


@dataclass(frozen=True)
class Generation:
    """One generation: its number, from 1, what it changes of the environment, and the step that it goes on from."""

    number: int
    environment: Mapping[str, str]
    resumed_step: int  # 0: it begins anew


def run_generations(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Run this interpreter with the arguments, once for each generation; returns the last one's exit code.

    SIGTERM is handed on; afterwards no other generation is waited for.
    """
    current = Generation(0, {}, 0)
    stops: list[int] = []
    work, checkpoints = Path(env[Env.WORK_DIR]), Path(env[Env.CHECKPOINT_DIR])
    adopt_orphans()
    while True:
        given = {**env, **current.environment, Env.GENERATIONS: "0"}
        # This process has one thread, so its child may run Python before the program is there.
        running = subprocess.Popen([sys.executable, *arguments], env=given, preexec_fn=die_with_parent)  # noqa: S603, PLW1509

        def hand_on(number: int, _frame: object, running: subprocess.Popen[bytes] = running) -> None:
            stops.append(number)
            running.send_signal(number)

        signal.signal(signal.SIGTERM, hand_on)
        newer = _wait_for_end(running, work, current)
        end_orphans()
        code = running.returncode if running.returncode >= 0 else SIGNAL_CODE_BASE - running.returncode
        if newer is None and code in LOST_PEER_CODES and not stops:
            _say(f"A peer may be lost: waiting {WAIT_SECONDS_MAX:.0f} s for another one.")
            until = time.monotonic() + WAIT_SECONDS_MAX
            while newer is None and not stops and time.monotonic() < until:
                time.sleep(POLL_SECONDS)
                newer = read_generation(work, after=current)
        if newer is None or stops:
            return code
        forget_beyond(checkpoints, newer.resumed_step)
        (work / JOINED_FILE).write_text(str(newer.number))
        _say(f"Generation {newer.number} of the gang begins at step {newer.resumed_step}.")
        current = newer


def read_generation(work: Path, *, after: Generation) -> Generation | None:
    """The generation in the work folder, where it is newer; None where there is none, or the file is damaged."""
    try:
        with (work / GANG_FILE).open("rb") as file:
            body = json.loads(file.read(GANG_FILE_BYTES_MAX))
        number, step = int(body["generation"]), int(body["resumed_step"])
        found = Generation(number, {name: str(body["environment"][name]) for name in CHANGING}, step)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if found.number > after.number else None


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
    """Kill what a generation left, and wait for it: two would fight for devices and ports."""
    while True:
        for task in Path("/proc/self/task").iterdir():
            for child in (task / "children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _wait_for_end(running: subprocess.Popen[bytes], work: Path, current: Generation) -> Generation | None:
    """Wait for the ranks; where a newer generation is announced meanwhile, end them and return it."""
    while running.poll() is None:
        newer = read_generation(work, after=current)
        if newer is not None:
            running.kill()
            running.wait()
            return newer
        time.sleep(POLL_SECONDS)
    return None


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - into the job's log
