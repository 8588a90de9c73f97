"""The connection to one gateway: dialled, both sides authenticated, kept alive, dialled again when it is lost."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from provider_agent.protocol.backoff import FULL_JITTER, backoff_seconds
from provider_agent.protocol.tunnel import hello
from provider_agent.protocol.tunnel.frames import (
    HEARTBEAT_SECONDS,
    MISSES_UNTIL_DEAD,
    Broken,
    Open,
)
from provider_agent.protocol.tunnel.mux import PING_BYTES, Mux
from provider_agent.protocol.tunnel.streams import Stream
from provider_agent.protocol.tunnel.tuning import tune

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

RETRY_SECONDS_FIRST: Final = 0.2
RETRY_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 5.0  # a connection that lasted so long was a good one: the next try comes soon
ERROR_CHARACTERS_MAX: Final = 200

log = logging.getLogger(__name__)


class GatewayUntrusted(Exception):
    """The answering side does not hold the key that the marketplace named for this gateway."""


class Requests(Protocol):
    """Receives the requests of a gateway, and keeps what is announced to it."""

    def opened(self, stream: Stream, request: Open) -> None:
        """A request; it is given a receiver, or reset."""

    def leases(self) -> dict[UUID, dict[str, Any]]:
        """What is announced as soon as the connection is there."""


@dataclass
class ConnectionState:
    """What `souk-agent status` shows of a connection."""

    is_up: bool = False
    since: float = 0.0  # loop's clock
    dialled: int = 0
    round_trip_ms: float | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    why: str = ""  # it is not up


class GatewayConnection:
    """`keep` runs as long as the connection is wanted; cancel it to close."""

    def __init__(
        self,
        url: str,
        gateway_key: str,
        *,
        node_key: Ed25519PrivateKey,
        boot: str,
        requests: Requests,
        tls: Callable[[], ssl.SSLContext],
    ) -> None:
        self._url = url
        self._gateway_key = gateway_key
        self._node_key = node_key
        self._boot = boot
        self._requests = requests
        self._tls = tls
        self._wanted = asyncio.Event()
        self._mux: Mux | None = None
        self.state = ConnectionState()
        self._received_at = 0.0

    # --- what is announced

    def announce(self, lease_id: UUID, ready: dict[str, Any]) -> None:
        """Now, where the connection is there; it is announced again on every new one."""
        if self._mux is not None:
            self._mux.announce(lease_id, ready)

    def withdraw(self, lease_id: UUID) -> None:
        """The opposite; requests that are open go on."""
        if self._mux is not None:
            self._mux.withdraw(lease_id)

    @property
    def is_busy(self) -> bool:
        """Requests are open, or something waits to be sent."""
        return self._mux is not None and (bool(self._mux.streams) or self._wanted.is_set())

    # --- events of the Mux

    def opened(self, stream: Stream, request: Open) -> None:
        """A request came."""
        self._requests.opened(stream, request)

    def announced(self, lease_id: UUID, ready: dict[str, Any]) -> None:
        """Sent to gateways only."""

    def withdrawn(self, lease_id: UUID) -> None:
        """Sent to gateways only."""

    def ponged(self, payload: bytes) -> None:
        """The gateway is alive."""
        sent_us = int.from_bytes(payload, "big")
        self.state.round_trip_ms = round((_now_us() - sent_us) / 1000, 2)

    # --- the connection

    async def keep(self) -> None:
        """Dial, serve, and dial again after a pause that grows and is drawn at random, for ever."""
        failed = 0
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._live()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # whatever it was, the gateway must be dialled again
                self.state.why = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]
                log.info("The tunnel is not there: %s", self.state.why, extra={"gateway": self._url})
            lasted = asyncio.get_running_loop().time() - began
            failed = 0 if lasted > STEADY_SECONDS else failed + 1
            # After one failure, the shortest pause: the connection was steady before it was lost.
            first, most = RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX
            await asyncio.sleep(backoff_seconds(failed + 1, first=first, most=most, jitter=FULL_JITTER))

    async def _live(self) -> None:
        from provider_agent.tunnel.dialling import dial

        self.state.dialled += 1
        tls = self._tls() if self._url.startswith("wss:") else None
        async with dial(self._url, tls) as connection:
            tune(connection.transport.get_extra_info("socket"))
            async with asyncio.timeout(hello.HELLO_SECONDS_MAX):
                await self._greet(connection)
            await self._serve(connection)

    async def _greet(self, connection: ClientConnection) -> None:
        mine = hello.say_hello(self._node_key, boot=self._boot, url=self._url)
        await connection.send(mine.model_dump_json())
        proof: hello.Proof = hello.read(hello.Proof, await connection.recv())
        if not hello.is_proven(mine, proof, self._gateway_key):
            raise GatewayUntrusted("whoever answers does not hold this gateway's key")
        await connection.send(hello.answer(self._node_key, mine, proof, self._gateway_key).model_dump_json())

    async def _serve(self, connection: ClientConnection) -> None:
        mux = Mux(self, self._wanted.set, opens=False)
        loop = asyncio.get_running_loop()
        self._received_at = self.state.since = loop.time()
        self._mux = mux
        for lease_id, ready in self._requests.leases().items():
            mux.announce(lease_id, ready)
        mux.ping(_now_us().to_bytes(PING_BYTES, "big"))
        self.state.is_up, self.state.why = True, ""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write(connection, mux))
                group.create_task(self._beat(mux))
                await self._read(connection, mux)
                raise ConnectionError("the gateway closed the connection")
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            self._mux = None
            self.state.is_up = False
            mux.lose("the tunnel was lost")

    async def _read(self, connection: ClientConnection, mux: Mux) -> None:
        loop = asyncio.get_running_loop()
        async for message in connection:
            if not isinstance(message, bytes):
                raise Broken("a message of text")
            self._received_at = loop.time()
            self.state.bytes_in += len(message)
            mux.feed(message)

    async def _write(self, connection: ClientConnection, mux: Mux) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while message := mux.take():
                self.state.bytes_out += len(message)
                await connection.send(message)

    async def _beat(self, mux: Mux) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if loop.time() - self._received_at > HEARTBEAT_SECONDS * MISSES_UNTIL_DEAD:
                raise ConnectionError("the gateway fell silent")
            mux.ping(_now_us().to_bytes(PING_BYTES, "big"))


def _now_us() -> int:
    return int(asyncio.get_running_loop().time() * 1_000_000)
