"""Outlives the agent beside one program: pumps its output to the log, and writes down how it ended.

Started as `python -I process_supervisor.py LEASE_FOLDER` by the process executor. Standard library only; of ours it
loads landlock.py, which lies beside it. It is the program's subreaper, so that whatever the program detaches still
belongs to it.

1. read launch.json (it holds secrets) and delete it
2. start the program in a session of its own, with limits; write supervisor.json
3. pump output into the log up to the cap; watch memory and the lease's end
4. when the program has ended: kill what it left behind, write exit.json atomically
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TICK_SECONDS = 0.25
WATCH_SECONDS = 0.5
DRAIN_SECONDS = 2.0
READ_BYTES = 64 * 1024
PR_SET_CHILD_SUBREAPER = 36
KILLED_CODES = (-signal.SIGKILL, 128 + signal.SIGKILL)  # of a program, or of a launcher whose rank was killed
OOM_SECONDS = 60.0  # from a rank's end to its launcher's
VMSTAT = Path("/proc/vmstat")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CANNOT_START = 127
KILL_SECONDS_MAX, KILL_PAUSE_SECONDS = 30.0, 0.02
CHILDREN_LOOKS = 20  # at our children, for each look at all processes
RESERVE_NAME = "exit.reserve"
RESERVE_BYTES = 1024


def main(folder: Path) -> None:
    """Run one program to its end."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    launch = json.loads((folder / "launch.json").read_text())
    (folder / "launch.json").unlink()
    reader, writer = os.pipe()
    log = Log(folder / "log", launch["log_bytes_max"], launch["log_cap_line"])
    try:
        hide_agent = prepare_hiding(launch)
        program = subprocess.Popen(  # noqa: S603 - the customer's command, as an argument list
            launch["argv"],
            cwd=launch["cwd"],
            env=launch["env"],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=writer,
            start_new_session=True,
            preexec_fn=lambda: limit_self(launch, hide_agent),  # noqa: PLW1509 - this process has one thread
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.write(f"[souk] cannot start {launch['argv'][0]}: {error}\n".encode())
        write_json(folder / "supervisor.json", {"pid": os.getpid(), "child": 0})
        write_json(folder / "exit.json", {"code": CANNOT_START, "message": f"cannot start the command: {error}"})
        return
    os.close(writer)
    (folder / RESERVE_NAME).write_bytes(b" " * RESERVE_BYTES)
    write_json(folder / "supervisor.json", {"pid": os.getpid(), "child": program.pid})
    outcome = watch(program, reader, log, launch, folder)
    if not kill_descendants(program.pid):
        log.write(f"[souk] {len(children())} processes could not be ended\n".encode())
    drain(reader, log)
    write_exit(folder, outcome)


def watch(
    program: subprocess.Popen[bytes], reader: int, log: Log, launch: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """Pump and watch until the program has ended; returns how."""
    flags: dict[str, Any] = {}
    memory = KernelMemory(launch.get("memory_mib_share", 0) * 1024 * 1024)
    watched_at = 0.0
    grace_until = float("inf")
    is_open = True
    while program.poll() is None:
        is_open = pump(reader, log, is_open)
        now = time.monotonic()
        if now < watched_at + WATCH_SECONDS:
            continue
        watched_at = now
        reap_orphans(program.pid)
        memory.look()
        limit_bytes = launch["memory_mib_max"] * 1024 * 1024
        if limit_bytes and memory_bytes(limit_bytes) > limit_bytes:
            flags = {"out_of_memory": True, "message": f"used more than {launch['memory_mib_max']} MiB"}
            kill_descendants(program.pid)
        elif now > grace_until:
            kill_descendants(program.pid)
        elif not flags and lease_has_expired(folder):
            flags = {"lease_expired": True, "message": "the lease ran out while no agent was there"}
            grace_until = now + launch["grace_seconds"]
            os.killpg(program.pid, signal.SIGTERM)
    code = program.returncode
    memory.look()
    if not flags and code in KILLED_CODES and memory.has_ended_it():
        flags = {"out_of_memory": True, "message": "the kernel ended it: it used more than its part of the memory"}
    return {"code": code if code >= 0 else None, "signal": -code if code < 0 else None, **flags}


class KernelMemory:
    """Whether the kernel ended the program for want of memory, and the program was to blame.

    Where no limit is set, the kernel ends whatever is largest once the node has none left. A program that had taken
    more than its part has ended itself; else somebody else had, and the node did not give what it rents out.
    """

    def __init__(self, share_bytes: int) -> None:
        self._share_bytes = share_bytes
        self._kills, self._killed_at, self._peak_bytes = oom_kills(), float("-inf"), 0

    def look(self) -> None:
        """Note how much it uses, and whether the kernel ended anything since the last look."""
        if not self._share_bytes:
            return
        if self._peak_bytes <= self._share_bytes:
            self._peak_bytes = max(self._peak_bytes, memory_bytes(self._share_bytes))
        kills = oom_kills()
        if kills > self._kills:
            self._kills, self._killed_at = kills, time.monotonic()

    def has_ended_it(self) -> bool:
        """Asked of a program that was killed. Between two looks the kernel knows the largest process that ended."""
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        is_lately = time.monotonic() - self._killed_at < OOM_SECONDS
        return is_lately and max(self._peak_bytes, largest) > self._share_bytes > 0


def oom_kills() -> int:
    """How many processes this kernel (Linux 4.13 and newer) has ended for want of memory."""
    try:
        counts = dict(line.split() for line in VMSTAT.read_text().splitlines())
        return int(counts.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0


def pump(reader: int, log: Log, is_open: bool) -> bool:
    """Move what is there from the pipe to the log; returns whether the pipe is still open."""
    if not is_open:
        time.sleep(TICK_SECONDS)
        return False
    ready, _, _ = select.select([reader], [], [], TICK_SECONDS)
    if not ready:
        return True
    data = os.read(reader, READ_BYTES)
    log.write(data)
    return bool(data)


def drain(reader: int, log: Log) -> None:
    """Read what is left in the pipe; no process writes to it any more, but the read is bounded all the same."""
    until = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < until:
        ready, _, _ = select.select([reader], [], [], 0)
        data = os.read(reader, READ_BYTES) if ready else b""
        if not data:
            return
        log.write(data)


class Log:
    """An append-only file with a cap; the last line says that the cap was reached."""

    def __init__(self, path: Path, bytes_max: int, cap_line: str) -> None:
        self._file = path.open("ab", buffering=0)
        self._cap_line = cap_line.encode()
        self._left = bytes_max - len(self._cap_line) - path.stat().st_size
        self._is_full = False

    def write(self, data: bytes) -> None:
        """Keep `data`, or as much of it as fits."""
        if self._is_full:
            return
        try:
            self._file.write(data[: max(self._left, 0)])
            self._left -= len(data)
            if self._left < 0:
                self._is_full = True
                self._file.write(self._cap_line)
        except OSError:  # the disk is full: what is printed meanwhile is lost, the program goes on
            return


def prepare_hiding(launch: dict[str, Any]) -> Callable[[], None]:
    """What the program does to itself before it starts: hide the agent's folder, but for what it needs of it."""
    if not launch["private"]:
        return lambda: None
    spec = importlib.util.spec_from_file_location("landlock", Path(__file__).with_name("landlock.py"))
    if spec is None or spec.loader is None:
        raise OSError("landlock.py is missing beside the supervisor")
    landlock = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(landlock)
    readable = [Path(each) for each in launch["readable"]]
    rules = landlock.rules_without(Path(launch["private"]), read=readable, written=[Path(launch["cwd"])])
    return lambda: landlock.restrict_self(rules)


def limit_self(launch: dict[str, Any], hide_agent: Callable[[], None]) -> None:
    """Limits of the program, set between fork and exec. Memory is watched instead: RLIMIT_AS breaks torch."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lower_limit(resource.RLIMIT_FSIZE, launch["file_bytes_max"])
    lower_limit(resource.RLIMIT_NPROC, launch["processes_max"])
    if launch["cores"]:
        os.sched_setaffinity(0, launch["cores"])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    hide_agent()


def lower_limit(which: int, value: int) -> None:
    """Set a limit, never above the one we have."""
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def lease_has_expired(folder: Path) -> bool:
    """Whether the end of the lease that the agent wrote last (seconds of CLOCK_BOOTTIME) has passed."""
    try:
        until = float((folder / "lease_until").read_text())
    except (OSError, ValueError):
        return False
    return time.clock_gettime(time.CLOCK_BOOTTIME) > until


def descendants(*, with_zombies: bool = False) -> list[int]:
    """Every process below this one: what the program started, also what it detached."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parent, is_zombie = int(fields[1]), fields[0] == "Z"
        if with_zombies or not is_zombie:
            children.setdefault(parent, []).append(int(stat.parent.name))
    found, queue = [], [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def kill_descendants(program_pid: int) -> bool:
    """End them all, however quickly they fork; returns whether none is left.

    Whoever is left is below one of our children, since what loses its parent becomes one: where there is none but the
    program itself, nothing is left. A look at all processes takes too long for one that moves on to a new process each
    moment; our children alone are read in microseconds.
    """
    until, before = time.monotonic() + KILL_SECONDS_MAX, set[int]()
    while time.monotonic() < until:
        for find in [children] * CHILDREN_LOOKS + [descendants]:
            for pid in find():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        reap_orphans(program_pid)
        left = set(children())
        if left <= {program_pid}:
            return True
        if left == before:  # they are dying, or the kernel keeps them
            time.sleep(KILL_PAUSE_SECONDS)
        before = left
    return False


def children() -> list[int]:
    """Our own children, also those that have ended and were not collected. This process has one thread."""
    pid = os.getpid()
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return descendants(with_zombies=True)


def reap_orphans(program_pid: int) -> None:
    """Collect ended orphans; the program itself is left to its Popen object, which would else lose its exit code."""
    for pid in descendants(with_zombies=True):
        if pid == program_pid:
            continue
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue


def memory_bytes(limit_bytes: int) -> int:
    """Resident memory of all descendants together, but for files'. Below `limit_bytes` it may be counted too high.

    What a process had when it forked, as the launcher of a training's ranks does, is in the quick sum once for each
    fork. To know it exactly the kernel looks at every page, so it is asked only where that decides.
    """
    pids = descendants()
    quick = sum(_resident_bytes(pid) for pid in pids)
    return quick if quick <= limit_bytes else min(quick, sum(_divided_bytes(pid) for pid in pids))


def _resident_bytes(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(fields[1]) - int(fields[2])) * PAGE_BYTES
    except (OSError, ValueError, IndexError):  # it has ended
        return 0


def _divided_bytes(pid: int) -> int:
    """A page that several processes have is divided among them (Linux 5.2 and newer; else as `_resident_bytes`)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended, or is not ours to look at
        return _resident_bytes(pid)
    kib = [int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:")]
    return kib[0] * 1024 if kib else _resident_bytes(pid)


def write_exit(folder: Path, outcome: dict[str, Any]) -> None:
    """Write how it ended, into space reserved at the start: a disk that is full now must not make it unknown."""
    reserve = folder / RESERVE_NAME
    with reserve.open("r+b") as out:
        out.write(json.dumps(outcome).encode().ljust(RESERVE_BYTES))
        out.flush()
        os.fsync(out.fileno())
    reserve.replace(folder / "exit.json")


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a file that is either absent or whole."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w") as out:
        json.dump(data, out)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
