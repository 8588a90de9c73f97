"""Starts `souk up` as a person does, and watches it from outside."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from examples.market import PATIENCE, free_ports
from marketplace.config.embedded.children import dying_with_parent

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[3]
STOP_SECONDS = 60 * PATIENCE
POLL_SECONDS = 0.1
# What the test session set for itself; a person's shell has none of it.
OURS = ("SOUK_", "DATABASE_URL", "REDIS_URL", "DJANGO_", "PYTEST_", "PROMETHEUS_", "PYTHONPATH")


def free_port() -> int:
    """A port that nobody uses, nor the next one."""
    return free_ports(4)


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without what the tests put there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {**kept, "PYTHONPATH": str(ROOT), **extra}


def up_command(*arguments: str, python: str = sys.executable) -> list[str]:
    return [python, "-m", "marketplace.config.commands.up", *arguments]


def fail_to_start(*arguments: str, **env: str) -> str:
    """What `souk up` prints when it cannot start; it must end by itself, with status 1 and without a traceback."""
    done = subprocess.run(
        up_command(*arguments), env=clean_environment(**env), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@dataclass
class Up:
    """One running `souk up --json`."""

    data: Path | None
    port: int
    env: Mapping[str, str] = field(default_factory=clean_environment)
    python: str = sys.executable
    user: str | None = None
    arguments: tuple[str, ...] = ()
    process: subprocess.Popen[str] = field(init=False)
    ready: dict[str, Any] = field(init=False, default_factory=dict)

    def __enter__(self) -> Up:
        command = up_command("--json", "--port", str(self.port), *self.arguments, python=self.python)
        command += ["--data", str(self.data)] if self.data else []
        options: dict[str, Any] = {}
        if self.user:
            entry = pwd.getpwnam(self.user)
            options = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "cwd": entry.pw_dir}
        self.process = subprocess.Popen(
            command,
            env=dict(self.env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=dying_with_parent(signal.SIGTERM),  # noqa: PLW1509  tests start it from their only thread
            **options,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, output = self.process.communicate(timeout=STOP_SECONDS)
            raise AssertionError(f"souk up did not start:\n{output}")
        self.ready = json.loads(line)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def folder(self) -> Path:
        return Path(self.ready["data"])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Exit status and everything that was written to standard error."""
        self.process.send_signal(number)
        _, output = self.process.communicate(timeout=STOP_SECONDS)
        return self.process.returncode, output

    def pid_of(self, name: str) -> int | None:
        """Who fills the post now, by the supervisor's own notes."""
        try:
            rows = json.loads((self.folder / "children.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return next((int(row["pid"]) for row in rows if row["name"] == name), None)

    def is_well(self) -> bool:
        """Web and sync both say so."""
        try:
            answers = [
                httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=30)
                for port in (self.port, self.port + 1, self.port + 3)
            ]
        except httpx.HTTPError:
            return False
        return all(answer.status_code == 200 for answer in answers)

    def processes(self) -> list[psutil.Process]:
        """Everything below the supervisor."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def of_each(self, look: Callable[[psutil.Process], T]) -> list[T]:
        """What is found of each; PostgreSQL's come and go, and of one that is gone there is nothing."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(look(process))
        return found


def wait_for(condition: Any, *, seconds: float = 60) -> None:
    """Return when `condition()` is true; fail after `seconds`, times PATIENCE."""
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not true after {seconds} s"
        time.sleep(POLL_SECONDS)


def all_gone(processes: list[psutil.Process]) -> bool:
    """Whether none of them lives (a zombie that nobody has collected yet is dead)."""
    return not any(_is_alive(one) for one in processes)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
