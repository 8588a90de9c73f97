"""Processes from a client to an engine, each of which can be killed: marketplace, gateway, tunnel ends, engines.

    with Stack(folder) as stack:
        engine = stack.start_engine(token_ms=5)
        provider = stack.start_provider(engine)        # its end of the tunnel
        stack.start_gateway()
        stack.wait_ready(1)
        client = openai.OpenAI(base_url=stack.base_url, api_key=stack.key)

The gateway is the real `souk gateway`, and the providers' ends are the agent's own tunnels.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jobs.gateway.messages import EndpointRow, KeyGrant, ReplicaRow, UsageRow
from runtimes.contract import SERVE_SOCKET, Capability
from tests.fakes.control import TOKEN, ControlChild, endpoint, grant, replica
from tests.fakes.engine import EngineChild, free_port

KEY = "sk-souk-" + "Alice" * 8  # of the form that the marketplace gives out
STOP_SECONDS_MAX = 15.0
IN_FLIGHT_MAX = 10_000  # of the stack's own key
LOG_CHARS = 2_000  # of each process's log, shown where something never comes
ROOT = Path(__file__).parents[2]


@dataclass
class Process:
    """One of the stack's, in its own process group."""

    argv: list[str]
    log: Path
    env: dict[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *self.argv],
                cwd=ROOT,
                env={**os.environ, **self.env},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """SIGTERM, and SIGKILL where that is not enough."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()


@dataclass(frozen=True)
class Elsewhere:
    """An engine that somebody else started, and ends."""

    port: int
    uds: Path


@dataclass
class Replica:
    """An engine, and the row and the node by which it is known."""

    engine: EngineChild | Elsewhere
    row: ReplicaRow
    seed: str
    ready: dict[str, Any]


class Stack:
    """Starts processes, and ends all of them at the end. Replicas come before the gateway and the providers."""

    def __init__(self, folder: Path, *, key: str = KEY, prefix: Sequence[str] = ()) -> None:
        self.folder, self.key, self._prefix = folder, key, prefix
        self.replicas: list[Replica] = []
        self.gateway_port = free_port()
        self._closing = ExitStack()
        self.endpoint: EndpointRow = endpoint("fake")
        self.endpoints = [self.endpoint]
        self.grants: list[KeyGrant] = [grant(key, in_flight_max=IN_FLIGHT_MAX)]
        self.control = self._closing.enter_context(ControlChild(prefix=prefix))
        self.control.grant(*self.grants)
        self.gateway: Process | None = None

    @property
    def base_url(self) -> str:
        """What an OpenAI client is given."""
        return f"http://127.0.0.1:{self.gateway_port}/v1"

    def add_endpoint(self, model: str, **fields: Any) -> EndpointRow:
        """One more model; its replicas are started with `of=`."""
        self.endpoints.append(endpoint(model, **fields))
        self.publish_table()
        return self.endpoints[-1]

    def start_engine(
        self,
        *,
        of: EndpointRow | None = None,
        called: str = "fake",
        capabilities: Sequence[Capability] = tuple(Capability),
        context: int = 1 << 20,
        **options: Any,
    ) -> Replica:
        """An engine on a socket as a runtime has it, with a lease of a node of its own. The table knows it."""
        place = self.folder / f"replica-{len(self.replicas)}"
        place.mkdir()
        engine = EngineChild(
            uds=place / SERVE_SOCKET, capabilities=capabilities, context=context, prefix=self._prefix, **options
        )
        self._closing.callback(engine.close)
        ready = {"engine": called, "capabilities": [str(each) for each in capabilities], "context": context}
        return self._add(engine, ready, of)

    def adopt(
        self, engine: Elsewhere, *, ready: dict[str, Any] | None = None, of: EndpointRow | None = None
    ) -> Replica:
        """A replica whose engine is there already; `ready`: what it reported of itself, else everything."""
        return self._add(engine, ready or {"engine": "fake", "capabilities": [str(each) for each in Capability]}, of)

    def _add(self, engine: EngineChild | Elsewhere, ready: dict[str, Any], of: EndpointRow | None = None) -> Replica:
        node = Ed25519PrivateKey.generate()
        row = replica(of or self.endpoint, node.public_key().public_bytes_raw().hex())
        made = Replica(engine, row, node.private_bytes_raw().hex(), ready)
        self.replicas.append(made)
        self.publish_table()
        return made

    def publish_table(self) -> None:
        """The marketplace serves these endpoints by these replicas."""
        self.control.serve(self.endpoints, [each.row for each in self.replicas])

    def start_gateway(self, *, is_plain: bool = False, prefix: Sequence[str] = (), **settings: Any) -> Process:
        """`souk gateway`; plain: it reaches the engines itself, without tunnels."""
        env = {
            "SOUK_GATEWAY_CONTROL_URL": self.control.url,
            "SOUK_GATEWAY_TOKEN": TOKEN,
            "SOUK_GATEWAY_DATA": str(self.folder / "gateway"),
            "SOUK_GATEWAY_BIND": "127.0.0.1",
            "SOUK_GATEWAY_PORT": str(self.gateway_port),
            "SOUK_GATEWAY_URL": f"ws://127.0.0.1:{self.gateway_port}",
            **{f"SOUK_GATEWAY_{name.upper()}": str(value) for name, value in settings.items()},
        }
        if is_plain:
            env["PLAIN_REPLICAS"] = json.dumps([_plain(each) for each in self.replicas])
        argv = [sys.executable, "-m", "tests.fakes.gateway_child"]
        self.gateway = Process(argv, self.folder / "gateway.log", env, prefix)
        self._closing.callback(self.gateway.close)
        self._wait_until(lambda state: state["gateways"])
        return self.gateway

    def start_provider(self, *replicas: Replica, prefix: Sequence[str] = ()) -> Process:
        """One node's end of the tunnel, which announces these replicas (of one node) to the gateway that is up."""
        (gateway,) = self.control.state()["gateways"]
        place = {
            "endpoint_id": str(self.endpoint.endpoint_id),
            "gateways": [{"url": gateway["url"], "public_key": gateway["public_key"]}],
        }
        leases = [
            {"lease_id": str(each.row.lease_id), "socket": str(each.engine.uds), "ready": each.ready}
            for each in replicas
        ]
        spec = json.dumps({"seed": replicas[0].seed, "place": place, "leases": leases})
        argv = [sys.executable, "-m", "tests.fakes.tunnel_end", spec]
        log = self.folder / f"provider-{replicas[0].row.lease_id}.log"
        provider = Process(argv, log, {}, prefix or self._prefix)
        self._closing.callback(provider.close)
        return provider

    def wait_ready(self, count: int) -> None:
        """Until the gateway reports that so many replicas are ready."""
        self._wait_until(
            lambda state: any(sum(row["is_ready"] for row in sync["replicas"]) >= count for sync in state["gateways"])
        )

    def _wait_until(self, condition: Callable[[dict[str, Any]], Any]) -> None:
        try:
            self.control.wait_until(condition)
        except TimeoutError as error:
            logs = "".join(f"{log.name}:\n{log.read_text()[-LOG_CHARS:]}\n" for log in self.folder.glob("*.log"))
            raise TimeoutError(f"{error}\n{logs}") from error

    def usage(self, count: int) -> list[UsageRow]:
        """The rows of use, when there are so many at least. Raises TimeoutError."""
        self.control.wait_until(lambda state: state["rows_taken"] >= count)
        return self.control.usage()

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything."""
        self._closing.close()


def _plain(each: Replica) -> dict[str, Any]:
    where = {"port": each.engine.port} if each.engine.port else {"socket": str(each.engine.uds)}
    return {"lease_id": str(each.row.lease_id), "ready": each.ready, **where}
