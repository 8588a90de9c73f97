"""What the demo's story is told with: processes that are always ended, a checked claim, the operator's browser."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

BIN = Path(sys.executable).parent
STOP_SECONDS = 30
POLL_SECONDS = 0.25
T = TypeVar("T")


class DemoFailed(Exception):
    """Something that the demo promises was not so."""


@dataclass
class Claims:
    """Everything that was checked; the demo's exit status hangs on it alone."""

    checked: list[str] = field(default_factory=list)

    def check(self, claim: str, is_true: object, seen: object = "") -> None:
        """Note a claim as seen, or end the demo here."""
        if not is_true:
            raise DemoFailed(f"not so: {claim}" + (f" (seen: {seen})" if seen != "" else ""))
        self.checked.append(claim)
        say(f"   [ok] {claim}" + (f": {seen}" if seen != "" else ""))


@dataclass
class Party:
    """Somebody with an account: what the command line needs to act in their name."""

    name: str
    key: str
    organisation_id: str
    home: Path

    def env(self, server: str) -> dict[str, str]:
        """Their environment: a home of their own, their server, their key."""
        keep = {name: value for name, value in os.environ.items() if not name.startswith("SOUK_")}
        return {**keep, "HOME": str(self.home), "SOUK_SERVER": server, "SOUK_API_KEY": self.key, "COLUMNS": "110"}


class Processes:
    """Started processes, the newest stopped first, and nothing of them left, whatever happens."""

    def __init__(self) -> None:
        self._started: list[tuple[str, subprocess.Popen[str]]] = []
        self._seen: set[psutil.Process] = set()

    def start(self, name: str, command: list[str], log: Path, **options: Any) -> subprocess.Popen[str]:
        """Start in a session of its own, so that a Ctrl-C here reaches it only through `stop_all`."""
        with log.open("a") as out:
            options.setdefault("stdout", out)
            process = subprocess.Popen(command, stderr=out, text=True, start_new_session=True, **options)
        self._started.append((name, process))
        return process

    def note_children(self) -> None:
        """Remember the descendants of all that runs, to find those that outlive their parents."""
        for _, process in self._started:
            with contextlib.suppress(psutil.NoSuchProcess):
                root = psutil.Process(process.pid)
                self._seen.update({root, *root.children(recursive=True)})

    def stop_all(self) -> list[str]:
        """Stop everything, politely and then not; returns what had to be killed although it should have stopped."""
        self.note_children()
        for _, process in reversed(self._started):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_SECONDS)
        left = [process for process in self._seen if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
        _, left = psutil.wait_procs(left, timeout=5)
        names = []
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                names.append(f"{process.pid} {' '.join(process.cmdline())[:100]}")
                process.kill()
        return names


def say(text: str = "") -> None:
    """One line of the story."""
    print(text, flush=True)


def title(number: int, text: str) -> None:
    """The heading of a chapter, with the time."""
    say(f"\n== {number}. {text}  [{time.strftime('%H:%M:%S')}]")


def wait_for(what: str, look: Callable[[], T | None], seconds: float) -> T:
    """The first true answer of `look`, or DemoFailed after `seconds`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(POLL_SECONDS)
    raise DemoFailed(f"waited {seconds:.0f} s in vain for {what}")


def free_ports(count: int) -> int:
    """The first of `count` ports in a row that nobody listens on."""
    for first in range(18000, 28000, count):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise DemoFailed("no free ports between 18000 and 28000")


def run(command: list[str], env: dict[str, str], *, seconds: float = 120, shown: bool = True) -> str:
    """Run one of our commands as a user would; returns what it printed, raises DemoFailed when it failed."""
    if shown:
        say("   $ " + " ".join(Path(command[0]).name if i == 0 else word for i, word in enumerate(command)))
    done = subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        raise DemoFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    if shown:
        for line in done.stdout.rstrip().splitlines():
            say("     " + line)
    return done.stdout


def run_json(command: list[str], env: dict[str, str]) -> Any:
    """Run a command with --json and read its answer."""
    return json.loads(run([*command, "--json"], env, shown=False))


def kill_tree(process: subprocess.Popen[str]) -> list[int]:
    """SIGKILL a process and all below it, at once: nobody gets to say goodbye. Returns the pids."""
    root = psutil.Process(process.pid)
    doomed = [root, *root.children(recursive=True)]
    for each in doomed:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait(STOP_SECONDS)
    return [each.pid for each in doomed]


@contextlib.contextmanager
def operator_browser(server: str, email: str, password: str) -> Iterator[httpx.Client]:
    """The operator, signed in to the admin pages with the password that `souk up` printed."""
    with httpx.Client(base_url=server, follow_redirects=True, timeout=30) as browser:
        page = post_form(browser, "/admin/login/?next=/admin/", {"username": email, "password": password})
        if "Log out" not in page and "logout" not in page:
            raise DemoFailed("the operator could not sign in to the admin")
        yield browser


def post_form(browser: httpx.Client, path: str, fields: dict[str, str]) -> str:
    """Open a page with a form and send it, with its CSRF token; returns the page that follows."""
    page = browser.get(path).text
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    if found is None:
        raise DemoFailed(f"no form at {path}")
    answer = browser.post(
        path, data={**fields, "csrfmiddlewaretoken": found[1]}, headers={"Referer": str(browser.base_url.join(path))}
    )
    answer.raise_for_status()
    return answer.text
