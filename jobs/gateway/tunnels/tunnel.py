"""One tunnel that an agent dialled: proven on both sides, then frames until it is lost. ASGI, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from provider_agent.protocol.tunnel import hello
from provider_agent.protocol.tunnel.frames import (
    HEARTBEAT_SECONDS,
    LEASES_PER_TUNNEL_MAX,
    MISSES_UNTIL_DEAD,
    VERSION,
    Broken,
    Open,
)
from provider_agent.protocol.tunnel.mux import Mux
from provider_agent.protocol.tunnel.streams import Stream

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CLOSE_BROKEN: Final = 4400  # the protocol was not kept to
CLOSE_REFUSED: Final = 4403  # not proven, or nothing of this node is expected here now
CLOSE_LATE: Final = 4408  # no hello in time
CLOSE_REPLACED: Final = 4409  # the node has newer tunnels

log = logging.getLogger(__name__)


class TunnelRefused(Exception):
    """Who dialled may not have a tunnel here."""


class TunnelLost(Exception):
    """The connection is gone."""


class Hub(Protocol):
    """Receives what a tunnel announces."""

    async def is_expected(self, node_key: str) -> bool:
        """Whether a node may announce anything here, now or in a moment."""

    def is_ours(self, url: str) -> bool:
        """Whether that is an address of this gateway."""

    def changed(self, tunnel: Tunnel, lease_id: UUID) -> None:
        """The tunnel announced a lease, or withdrew it."""


class Tunnel:
    """One connection, from the hello on."""

    def __init__(self, hub: Hub, receive: Receive, send: Send) -> None:
        self._hub = hub
        self._receive = receive
        self._send = send
        self._wanted = asyncio.Event()
        self._received_at = 0.0
        self.mux = Mux(self, self._wanted.set, opens=True)
        self.node_key = ""
        self.boot = ""
        self.ready: dict[UUID, dict[str, Any]] = {}  # what it announces, whether or not it may
        self.is_lost = False
        self._ended = asyncio.Event()
        self._why = ""
        self._close_code = CLOSE_BROKEN

    # --- the hello

    async def handshake(self, key: Ed25519PrivateKey) -> None:
        """Authenticate both sides to each other. Raises TunnelRefused, Broken, TunnelLost, TimeoutError."""
        async with asyncio.timeout(hello.HELLO_SECONDS_MAX):
            received: hello.Hello = hello.read(hello.Hello, await self._receive_text())
            if received.version != VERSION:
                raise TunnelRefused(f"this gateway speaks version {VERSION} of the tunnel")
            if not self._hub.is_ours(received.url):
                raise TunnelRefused("this gateway has another address")
            if not await self._hub.is_expected(received.node_key):
                raise TunnelRefused("no replica of this node is expected here now")
            proof = hello.prove(key, received)
            await self._send({"type": "websocket.send", "text": proof.model_dump_json()})
            answered: hello.Answer = hello.read(hello.Answer, await self._receive_text())
        if not hello.is_answered(received, proof, key.public_key().public_bytes_raw().hex(), answered):
            raise TunnelRefused("the node's key did not sign")
        self.node_key, self.boot = received.node_key, received.boot

    async def _receive_text(self) -> object:
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            raise TunnelLost("it was closed")
        return message.get("text")

    # --- frames

    async def serve(self) -> None:
        """Until it is lost, or closed; then every request through it has failed. Raises what ended it."""
        self._received_at = asyncio.get_running_loop().time()
        why = "the tunnel was lost"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write())
                group.create_task(self._monitor_silence())
                await self._read()
        except ExceptionGroup as several:
            why = f"the tunnel was lost: {several.exceptions[0]}"
            raise several.exceptions[0] from None
        finally:
            self.is_lost = True
            self.mux.lose(why)

    async def close(self, code: int) -> None:
        """Close the connection, if it is still open."""
        try:
            await self._send({"type": "websocket.close", "code": code})
        except (OSError, RuntimeError):
            log.debug("The tunnel was closed already")

    def end(self, code: int, why: str) -> None:
        """Have it closed, even where the other end reads nothing."""
        self.is_lost = True
        self._close_code, self._why = code, why
        self._ended.set()

    @property
    def close_code(self) -> int:
        """With which it is closed."""
        return self._close_code

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                raise TunnelLost("the agent closed it")
            frames = message.get("bytes")
            if frames is None:
                raise Broken("a message of text")
            self._received_at = loop.time()
            self.mux.feed(frames)

    async def _write(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while message := self.mux.take():
                await self._send({"type": "websocket.send", "bytes": message})

    async def _monitor_silence(self) -> None:
        loop = asyncio.get_running_loop()
        silent_max = HEARTBEAT_SECONDS * MISSES_UNTIL_DEAD
        while True:
            left = self._received_at + silent_max - loop.time()
            if left <= 0:
                raise TunnelLost("the agent fell silent")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), left)
                raise TunnelLost(self._why)

    # --- events of the Mux

    def opened(self, stream: Stream, request: Open) -> None:
        """Only an agent receives this."""

    def announced(self, lease_id: UUID, ready: dict[str, Any]) -> None:
        """A replica is ready; whether this node may announce it is the hub's decision."""
        if lease_id not in self.ready and len(self.ready) >= LEASES_PER_TUNNEL_MAX:
            raise Broken("too many leases")
        self.ready[lease_id] = ready
        self._hub.changed(self, lease_id)

    def withdrawn(self, lease_id: UUID) -> None:
        """It takes nothing new."""
        if self.ready.pop(lease_id, None) is not None:
            self._hub.changed(self, lease_id)

    def ponged(self, payload: bytes) -> None:
        """The gateway sends no pings: the agent's own are enough."""
