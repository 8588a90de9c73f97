"""A gateway's hub under a real uvicorn, an agent's tunnels, and engines on Unix sockets: everything in one event loop.

Nothing is faked but the engine, which each test writes as it needs it: an ASGI application, or a handler of bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from jobs.gateway.messages import ReplicaRow
from jobs.gateway.tunnels import TunnelHub
from jobs.gateway.tunnels.answers import TunnelAnswer
from marketplace.foundation.addresses.forwarded import parse_trusted_proxies
from provider_agent.protocol import GatewayPlace, ServePlace
from provider_agent.protocol.tunnel.tuning import tune
from provider_agent.tunnel import Tunnels
from runtimes.contract import SERVE_SOCKET

SECONDS_MAX = 20.0
POLL_SECONDS = 0.01
READY = {"engine": "test", "capabilities": ["chat"], "context": 512}

App = Callable[[Any, Any, Any], Awaitable[None]]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def public_of(key: Ed25519PrivateKey) -> str:
    """As hex, as it stands in messages."""
    return key.public_key().public_bytes_raw().hex()


async def until(condition: Callable[[], Any], what: str = "") -> Any:
    """Wait for it; what it returned."""
    async with asyncio.timeout(SECONDS_MAX):
        while not (found := condition()):
            await asyncio.sleep(POLL_SECONDS)
        return found
    raise AssertionError(what)


@contextlib.asynccontextmanager
async def served(app: Any, **listening: Any) -> AsyncIterator[uvicorn.Server]:
    """An application under uvicorn, on `uds=path` or on `on=socket`."""
    on = listening.pop("on", None)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", interface="asgi3", **listening))
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment]
    task = asyncio.create_task(server.serve(sockets=[on] if on else None))
    await until(lambda: server.started)
    try:
        yield server
    finally:
        server.should_exit = server.force_exit = True
        await task


class Gateway:
    """A hub that listens; with `certificate` (see `make_certificate`) it speaks TLS."""

    def __init__(self, listening: socket.socket, *, scheme: str, proxies: str = "") -> None:
        self.key = Ed25519PrivateKey.generate()
        self.listening = listening
        self.clients: list[str] = []  # from where a tunnel came
        self.url = f"{scheme}://{listening.getsockname()[0]}:{listening.getsockname()[1]}"
        self.changes: list[UUID] = []
        trusted = parse_trusted_proxies(proxies)
        self.hub = TunnelHub(self.key, urls=[self.url], trusted=trusted, on_change=self.changes.append)

    @property
    def place(self) -> ServePlace:
        """As an assignment names it."""
        return ServePlace(endpoint_id=uuid4(), gateways=[GatewayPlace(url=self.url, public_key=public_of(self.key))])

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        self.clients.append(scope["client"][0])
        await self.hub.accept(scope, receive, send)


@contextlib.asynccontextmanager
async def gateway(
    address: str = "127.0.0.1", certificate: Path | None = None, proxies: str = ""
) -> AsyncIterator[Gateway]:
    """One that is up."""
    made = Gateway(socket.create_server((address, 0)), scheme="wss" if certificate else "ws", proxies=proxies)
    tune(made.listening)
    secure = {"ssl_certfile": certificate, "ssl_keyfile": certificate} if certificate else {}
    async with served(made.app, on=made.listening, ws="websockets-sansio", ws_ping_interval=None, **secure):
        yield made


def make_certificate(folder: Path, address: str) -> Path:
    """A file with a key and a certificate for an address, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gateway")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "gateway.pem"
    path.write_bytes(
        made.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    return path


def row(lease_id: UUID, node: Ed25519PrivateKey) -> ReplicaRow:
    """The table says that the lease is this node's."""
    return ReplicaRow(
        lease_id=lease_id,
        attempt_id=uuid4(),
        endpoint_id=uuid4(),
        version=1,
        node_id=uuid4(),
        node_key=public_of(node),
        state="ready",
    )


class World:
    """One gateway, one agent, one replica whose socket lies in `folder`."""

    def __init__(self, gateway: Gateway, folder: Path) -> None:
        self.gateway = gateway
        self.hub = gateway.hub
        self.node = Ed25519PrivateKey.generate()
        self.tunnels = Tunnels(self.node)
        self.lease_id = uuid4()
        self.socket = folder / SERVE_SOCKET

    def announce(self, **ready: Any) -> None:
        """The agent says that the replica is ready."""
        self.tunnels.announce(self.lease_id, self.gateway.place, self.socket, {**READY, **ready})

    async def up(self) -> None:
        """Allowed, announced, there."""
        self.hub.allow([row(self.lease_id, self.node)])
        self.announce()
        await until(lambda: self.lease_id in self.hub.announced())

    async def ask(
        self,
        path: str = "/v1/x",
        body: bytes = b"",
        *,
        method: str = "POST",
        headers: Sequence[tuple[bytes, bytes]] = (),
        seconds: float = SECONDS_MAX,
    ) -> TunnelAnswer:
        """A request through the tunnel; its answer has begun."""
        upstream = self.hub.upstream(self.lease_id)
        assert upstream is not None, "there is no way to the replica"
        return await upstream.request(method, path, headers, body, seconds=seconds)

    async def read(self, path: str = "/v1/x", body: bytes = b"") -> bytes:
        """The whole body of an answer."""
        answer = await self.ask(path, body)
        return b"".join([chunk async for chunk in answer.chunks()])


@contextlib.asynccontextmanager
async def world(
    app: App | None = None, *, talk: Talk | None = None, is_up: bool = True, proxies: str = ""
) -> AsyncIterator[World]:
    """All of it, with an engine that is an ASGI application or a handler of bytes."""
    with tempfile.TemporaryDirectory(prefix="souk-tunnel-") as name:
        async with gateway(proxies=proxies) as there, contextlib.AsyncExitStack() as stack:
            made = World(there, Path(name))
            if app is not None:
                await stack.enter_async_context(served(app, uds=str(made.socket)))
            if talk is not None:
                stack.push_async_callback(_close, await asyncio.start_unix_server(talk, made.socket))
            try:
                if is_up:
                    await made.up()
                yield made
            finally:
                await made.tunnels.close()


async def _close(server: asyncio.Server) -> None:
    server.close()


def run(scenario: Awaitable[Any]) -> Any:
    """A test's coroutine, which may not last longer than a test."""

    async def bounded() -> Any:
        async with asyncio.timeout(60):
            return await scenario

    return asyncio.run(bounded())
