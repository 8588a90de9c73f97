"""The fake marketplace as a process of its own, and a test's handle of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from jobs.gateway.messages import EndpointRow, KeyGrant, ReplicaRow, Table, UsageRow
from tests.fakes.engine import free_port

TOKEN = "gateway-token"
START_SECONDS_MAX = 20.0
WAIT_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 5.0
ROOT = Path(__file__).parents[3]


class ControlChild:
    """It answers when the constructor returns."""

    def __init__(self, *, prefix: Sequence[str] = ()) -> None:
        self.port = free_port()
        argv = [*prefix, sys.executable, "-m", "tests.fakes.control", "--port", str(self.port), "--token", TOKEN]
        self.process = subprocess.Popen(argv, cwd=ROOT)
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.state()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    self.close()
                    raise
                time.sleep(0.02)

    @property
    def url(self) -> str:
        """The table that a gateway receives."""
        return f"http://127.0.0.1:{self.port}"

    def serve(self, endpoints: Sequence[EndpointRow], replicas: Sequence[ReplicaRow]) -> None:
        """This is what is served from the next sync on."""
        self._call("PUT", "/fake/table", Table(endpoints=list(endpoints), replicas=list(replicas)).model_dump_json())

    def grant(self, *grants: KeyGrant) -> None:
        """These keys exist, and no other."""
        self._call("PUT", "/fake/grants", json.dumps([row.model_dump(mode="json") for row in grants]))

    def set_down(self, is_down: bool) -> None:
        """Answer gateways with 503 only, or well again."""
        self._call("PUT", "/fake/down", json.dumps(is_down))

    def usage(self) -> list[UsageRow]:
        """Every row that gateways reported, once."""
        return [UsageRow.model_validate(row) for row in self._call("GET", "/fake/usage")]

    def state(self) -> dict[str, Any]:
        """Counts, problems, and each gateway's newest word."""
        return dict(self._call("GET", "/fake/state"))

    def wait_until(self, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The first state for which it holds. Raises TimeoutError."""
        until = time.monotonic() + WAIT_SECONDS_MAX
        while not condition(state := self.state()):
            if time.monotonic() > until:
                raise TimeoutError(f"it never was so: {state}")
            time.sleep(0.05)
        return state

    def _call(self, method: str, path: str, body: str | None = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body=body)
            answer = connection.getresponse()
            data = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{method} {path}: {answer.status} {data.decode()}")
            return json.loads(data)
        finally:
            connection.close()

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> ControlChild:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
