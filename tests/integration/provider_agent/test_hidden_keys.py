"""A program on a process node cannot read the agent's keys, trace it or end it; all else is as for its user."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import textwrap
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from provider_agent.errors import BadConfig
from provider_agent.executors import landlock
from provider_agent.executors.base import Exit, LaunchSpec
from provider_agent.executors.process import ProcessExecutor, warning_of_strangers

SECONDS_MAX = 60
LEASE = uuid4()
TRIED = textwrap.dedent(
    """
    import json, os, socket, subprocess, sys, tempfile
    root, lease, agent = sys.argv[1:4]
    work = lease + "/work"
    key = root + "/transport.key"
    def read(path):
        with open(path, "rb") as file:
            return len(file.read(64))
    def copy(how):
        there = work + "/" + how.__name__
        how(key, there)
        size = read(there)
        if not os.path.exists(key):
            os.rename(there, key)
        return size
    def connect(address):
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(address)
    tries = {
        "the key": lambda: read(key),
        "the key by a link": lambda: copy(os.symlink),
        "the key by a hard link": lambda: copy(os.link),
        "the key by a move": lambda: copy(os.rename),
        "the key by the agent's root": lambda: read(f"/proc/{agent}/root{key}"),
        "the agent's memory": lambda: read(f"/proc/{agent}/mem"),
        "another job's file": lambda: read(root + "/leases/other/work/data"),
        "a child that reads": lambda: subprocess.run(["cat", key], check=True, capture_output=True).returncode,
        "an abstract socket": lambda: connect("\\0souk-test-" + agent),
        "the agent's end": lambda: os.kill(int(agent), 0),
        "the runtime changed": lambda: open(root + "/runtimes/python", "wb").close(),
        "its inputs changed": lambda: open(lease + "/inputs/model", "wb").close(),
        "its work folder": lambda: open(work + "/out", "wb").close(),
        "a move in it": lambda: (os.mkdir(work + "/a"), os.rename(work + "/out", work + "/a/out"))[1],
        "its inputs": lambda: read(lease + "/inputs/model"),
        "the runtime": lambda: read(root + "/runtimes/python"),
        "a temporary file": lambda: tempfile.TemporaryFile().close(),
        "the folders above": lambda: len(os.listdir("/")) and None,
        "a program": lambda: subprocess.run([sys.executable, "-c", "1"], check=True).returncode and None,
        "a virtual environment": lambda: subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", work + "/venv"], check=True
        ).returncode and None,
    }
    found = {}
    for name, act in tries.items():
        try:
            found[name] = ["", act()][0]
        except (OSError, subprocess.CalledProcessError) as error:
            found[name] = type(error).__name__
    with open(work + "/found.json", "w") as out:
        json.dump(found, out)
    """
)
DENIED = {
    "the key",
    "the key by a link",
    "the key by a hard link",
    "the key by a move",
    "the key by the agent's root",
    "the agent's memory",
    "another job's file",
    "a child that reads",
    "an abstract socket",
    "the agent's end",
    "the runtime changed",
    "its inputs changed",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An agent's folder, with two jobs."""
    root = tmp_path / "agent"
    files = ("transport.key", "runtimes/python", "leases/other/work/data", f"leases/{LEASE}/inputs/model")
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    (root / "leases" / str(LEASE) / "work").mkdir()
    return root


def run(root: Path, **changes: Any) -> tuple[Exit, dict[str, str]]:
    """Start the program as a lease's, and what it found out."""
    folder = root / "leases" / str(LEASE)
    executor = ProcessExecutor(sys.executable)
    words = [sys.executable, "-c", TRIED, str(root), str(folder), str(os.getpid())]
    values: dict[str, Any] = {"private": root, "readable": (root / "runtimes",), **changes}
    spec = LaunchSpec(LEASE, folder, words, {"PATH": os.defpath}, **values)

    async def scenario() -> Exit:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"\0souk-test-{os.getpid()}")
        listener.listen()
        handle = await executor.start(spec)
        until = time.monotonic() + SECONDS_MAX
        while (ended := await executor.poll(handle)) is None:
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
        await executor.cleanup(handle)
        listener.close()
        return ended

    ended = asyncio.run(scenario())
    return ended, json.loads((folder / "work" / "found.json").read_text())


def test_a_program_gets_at_nothing_of_the_agents(root: Path) -> None:
    ended, found = run(root)
    assert ended.code == 0
    assert {name for name, error in found.items() if error} == DENIED


def test_without_rules_it_would(root: Path) -> None:
    _, found = run(root, private=None)
    assert {name for name, error in found.items() if error} <= {"the agent's memory"}  # whose first page is nobody's


def test_what_is_made_beside_the_agents_folder_later_is_closed(root: Path) -> None:
    rules = landlock.rules_without(root)
    (root.parent / "later").write_text("x")
    child = os.fork()
    if child == 0:
        try:
            landlock.restrict_self(rules)
            (root.parent / "later").read_text()
        except PermissionError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_strangers_are_refused_where_they_would_read_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Landlock" not in warning_of_strangers(True) + warning_of_strangers(False)
    monkeypatch.setattr(landlock, "version", lambda: 1)
    assert "can read this agent's keys" in warning_of_strangers(False)
    with pytest.raises(BadConfig, match="Leave out --allow-strangers"):
        warning_of_strangers(True)
