"""A computer of its own on this one: its network, mounts, process numbers and name, and a root file system of its own.

The root is an overlay: this computer's files below, read-only, and a folder of its own on top; /run and /tmp are empty.
Process 1 is a shell that waits. Whatever happens to the tests, the kernel ends it with the thread that made it, and
with it everything that ever started there, its mounts, interfaces and rules: nothing is left to sweep but files and
control groups.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from marketplace.config.embedded.children import dying_with_parent

READY_SECONDS_MAX = 20.0
COMMAND_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
NAMESPACES = ("net", "mnt", "uts", "ipc", "pid")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENGINE_DATA = "/var/lib/docker"
PROJECT = Path(__file__).resolve().parents[3]
EMPTIED = (Path("/tmp"), Path("/run"))  # of every computer's own
# What this computer may have of its own, and a fresh one has not.
NOT_THERE = (
    *("/opt/souk-agent", "/var/lib/souk-agent", "/usr/local/bin/souk-agent", "/etc/xdg/pip", "/etc/docker"),
    *("/root/.bashrc", "/root/.profile", "/root/.ssh", "/root/.config", "/root/.docker"),
)
BOOT = """
set -eu
mount -t overlay overlay -o lowerdir=/,upperdir={folder}/upper,workdir={folder}/work {folder}/root
cd {folder}/root
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
for shown in {shown}; do
  mkdir -p ".$shown"
  mount --rbind "$shown" ".$shown"
  mount -o remount,ro,bind ".$shown"
done
rm -rf {absent}
mkdir -p .{engine_data} run/lock run/sshd .old
mount --bind {engine} .{engine_data}
ln -sfn /run var/run
pivot_root . .old
umount -l /.old
rmdir /.old
hostname {name}
echo "127.0.0.1 localhost {name}" > /etc/hosts
ip link set lo up
echo ready
sleep infinity & wait
"""


def _hidden() -> list[Path]:
    """What the commands on a computer need of this project, where it lies in a folder that is empty there."""
    needed = {PROJECT, Path(sys.prefix)}
    return sorted(path for path in needed if any(path.is_relative_to(folder) for folder in EMPTIED))


class ComputerFailed(Exception):
    """A computer did not start, or a command on it failed."""


@dataclass
class Computer:
    """Up from `start` to `stop`; `engine` is the folder in which its container engine keeps images."""

    name: str
    folder: Path
    engine: Path | None = None
    _shell: subprocess.Popen[str] | None = None
    _first: int = 0  # its process 1, by this computer's numbers
    namespaces: dict[str, str] = field(default_factory=dict)  # kind -> "net:[4026532000]"

    def start(self) -> None:
        """Make it; raises ComputerFailed with the output."""
        for name in ("upper", "work", "root", "engine"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o711)
        script = BOOT.format(
            folder=shlex.quote(str(self.folder)),
            engine=shlex.quote(str(self.engine or self.folder / "engine")),
            engine_data=ENGINE_DATA,
            shown=" ".join(shlex.quote(str(path)) for path in _hidden()),
            absent=" ".join(f".{path}" for path in NOT_THERE),
            name=shlex.quote(self.name),
        )
        kinds = [f"--{kind}" for kind in ("net", "mount", "uts", "ipc", "pid")]
        self._shell = subprocess.Popen(
            ["unshare", *kinds, "--fork", "--kill-child", "bash", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=dying_with_parent(signal.SIGKILL),  # noqa: PLW1509 - before the tests start any thread
        )
        assert self._shell.stdout is not None
        first_line = _first_line(self._shell.stdout)
        if first_line != "ready\n":
            self.stop()
            raise ComputerFailed(f"{self.name} did not start: {first_line}")
        (first,) = psutil.Process(self._shell.pid).children()
        self._first = first.pid
        self.namespaces = {kind: str(Path(f"/proc/{self._first}/ns/{kind}").readlink()) for kind in NAMESPACES}

    def stop(self) -> None:
        """End it with all that is on it."""
        if self._shell is not None:
            self._shell.kill()
            self._shell.wait(STOP_SECONDS_MAX)

    def entering(self, *words: str | Path) -> list[str]:
        """The command that runs `words` there, with a fresh environment."""
        kinds = ("--mount", "--uts", "--ipc", "--net", "--pid")
        environment = [f"PATH={SYSTEM_PATH}", "HOME=/root", "USER=root", "LANG=C.UTF-8", "TERM=dumb"]
        return ["nsenter", f"--target={self._first}", *kinds, "env", "-i", *environment, *map(str, words)]

    def run(self, *words: str | Path, seconds: float = COMMAND_SECONDS_MAX, is_checked: bool = True) -> str:
        """What a command printed, both ways; raises ComputerFailed when it fails."""
        done = subprocess.run(
            self.entering(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=seconds, cwd="/", check=False,
        )  # fmt: skip
        if is_checked and done.returncode != 0:
            raise ComputerFailed(
                f"{self.name}: {shlex.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}"
            )
        return done.stdout

    def shell(self, script: str, *, seconds: float = COMMAND_SECONDS_MAX, is_checked: bool = True) -> str:
        """What a few lines of shell printed."""
        return self.run("sh", "-c", script, seconds=seconds, is_checked=is_checked)

    def start_program(self, log: str, *words: str | Path) -> subprocess.Popen[bytes]:
        """A program that goes on; `log` is a path there."""
        command = self.entering("sh", "-c", f'exec "$@" > {shlex.quote(log)} 2>&1', "sh", *words)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, cwd="/")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file there."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def path(self, path: str) -> Path:
        """One of its files, seen from here."""
        return Path(f"/proc/{self._first}/root{path}")

    def processes(self) -> dict[int, list[str]]:
        """Everything that runs there: number (as seen from here) -> command line."""
        found = {}
        for process in psutil.process_iter():
            try:
                if os.readlink(f"/proc/{process.pid}/ns/mnt") == self.namespaces["mnt"]:  # noqa: PTH115 - also of the dead
                    found[process.pid] = process.cmdline()
            except (OSError, psutil.Error):
                continue
        return found


def link(one: Computer, at_one: str, other: Computer, at_other: str) -> None:
    """A cable between two computers."""
    subprocess.run(
        ["ip", "link", "add", at_one, "netns", str(one._first), "type", "veth", "peer", "name", at_other,
         "netns", str(other._first)],
        check=True, capture_output=True,
    )  # fmt: skip


def link_here(at_here: str, other: Computer, at_other: str) -> None:
    """A cable between this computer and one of the world's; it goes with the other's end."""
    subprocess.run(
        ["ip", "link", "add", at_here, "type", "veth", "peer", "name", at_other, "netns", str(other._first)],
        check=True, capture_output=True,
    )  # fmt: skip


def _first_line(output: IO[str]) -> str:
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.append(output.readline()), daemon=True)
    reader.start()
    reader.join(READY_SECONDS_MAX)
    return lines[0] if lines else f"nothing was printed in {READY_SECONDS_MAX:.0f} s"
