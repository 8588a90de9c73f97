"""The engine as a process of its own, which can be killed, and the caller's hold on it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

START_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 5.0
ROOT = Path(__file__).parents[3]


class EngineChild:
    """`python -m tests.fakes.engine` with its options; it answers when the constructor returns."""

    def __init__(
        self, *, uds: Path | None = None, port: int | None = None, prefix: Sequence[str] = (), **options: Any
    ) -> None:
        self.uds = uds
        self.port = None if uds is not None else port or free_port()
        where = ["--uds", str(uds)] if uds is not None else ["--port", str(self.port)]
        self.argv = [*prefix, sys.executable, "-m", "tests.fakes.engine", *where, *as_arguments(options)]
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        self.process = subprocess.Popen(self.argv, cwd=ROOT)
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.call("GET", "/fake/stats")
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    self.kill()
                    raise
                time.sleep(0.02)

    @property
    def base_url(self) -> str:
        """Where an OpenAI client finds it; of an engine with a port only."""
        return f"http://127.0.0.1:{self.port}/v1"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send it a request, and read its JSON."""
        connection = _UnixConnection(str(self.uds)) if self.uds else HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body))
            answer = connection.getresponse()
            data = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{method} {path}: {answer.status} {data.decode()}")
            return json.loads(data)
        finally:
            connection.close()

    def stats(self) -> dict[str, Any]:
        """Its counts."""
        return dict(self.call("GET", "/fake/stats"))

    def requests(self) -> list[dict[str, Any]]:
        """The newest requests: path, headers, body."""
        return list(self.call("GET", "/fake/requests"))

    def fail(self, kind: str, **how: Any) -> None:
        """Let it go wrong from the next request on (faults.py)."""
        self.call("POST", "/fake/faults", {"kind": kind, **how})

    def heal(self) -> None:
        """No more faults."""
        self.call("DELETE", "/fake/faults")

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """SIGTERM, and SIGKILL where that is not enough."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def __enter__(self) -> EngineChild:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def as_arguments(options: dict[str, Any]) -> list[str]:
    """Keywords as options: first_token_ms=5 is --first-token-ms 5, a list is one option with its words."""
    out: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            out.append(flag)
        elif isinstance(value, (list, tuple, set, frozenset)):
            out += [flag, *map(str, value)]
        elif value is not None and value is not False:
            out += [flag, str(value)]
    return out


def free_port() -> int:
    """A port that nobody had a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
