"""Replicas that a gateway reaches by plain connections, without a tunnel between.

For tests of the gateway alone, and for benchmarks of what the gateway costs without the tunnel. Kept-alive connections
to loopback ports or Unix sockets; who reads slowly is not sent more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from uuid import UUID

import httptools

from jobs.gateway.engines.upstream import Announced, UpstreamError

BUFFER_BYTES_MAX = 256 * 1024  # of an answer that nobody reads
IDLE_MAX = 1024  # connections that are kept


@dataclass(frozen=True)
class Where:
    """An engine's address."""

    port: int = 0
    socket: Path | None = None


class PlainReplicas:
    """Fixed ones."""

    def __init__(self, engines: Mapping[UUID, tuple[Where, Announced]]) -> None:
        self._announced = {lease_id: announced for lease_id, (_, announced) in engines.items()}
        self._upstreams = {lease_id: PlainUpstream(where) for lease_id, (where, _) in engines.items()}

    def announced(self) -> Mapping[UUID, Announced]:
        """All of them, always."""
        return self._announced

    def upstream(self, lease_id: UUID) -> PlainUpstream | None:
        """The way to one."""
        return self._upstreams.get(lease_id)


class PlainUpstream:
    """One engine's connections."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._idle: list[_Connection] = []

    async def request(
        self, method: str, path: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, seconds: float
    ) -> _Connection:
        """See `jobs.gateway.engines.upstream.Upstream`."""
        lines = [b"%b %b HTTP/1.1\r\nhost: engine\r\n" % (method.encode(), path.encode())]
        lines += [b"%b: %b\r\n" % header for header in headers if header[0].lower() not in _OWN]
        data = b"%bcontent-length: %d\r\n\r\n%b" % (b"".join(lines), len(body), body)
        connection = await self._connection()
        try:
            async with asyncio.timeout(seconds):
                await connection.ask(data)
        except TimeoutError:
            connection.abort()
            raise UpstreamError("the replica did not answer in time", is_sent=True) from None
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_lost:
                return connection
        loop = asyncio.get_running_loop()
        try:
            if self._where.socket is not None:
                _, made = await loop.create_unix_connection(lambda: _Connection(self._idle), str(self._where.socket))
            else:
                _, made = await loop.create_connection(lambda: _Connection(self._idle), "127.0.0.1", self._where.port)
        except OSError as error:
            raise UpstreamError(f"the replica is not reached: {error}", is_sent=False) from error
        return made


_OWN = (b"content-length", b"host", b"connection", b"transfer-encoding")


class _Connection(asyncio.Protocol):
    """One connection, and the answer that is read from it now: `jobs.gateway.engines.upstream.Answer`."""

    def __init__(self, idle: list[_Connection]) -> None:
        self._idle, self.is_lost = idle, False
        self._wakes: asyncio.Future[None] | None = None

    async def ask(self, data: bytes) -> None:
        """Send a request; its answer has begun when this returns."""
        self.status, self.headers = 0, cast("list[tuple[bytes, bytes]]", [])
        self._parts: list[bytes] = []
        self._size, self._is_paused = 0, False
        self._is_complete, self._is_kept, self._is_closed = False, False, False
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(data)
        while not self.status:
            if self.is_lost:
                raise UpstreamError("the replica hung up", is_sent=True)
            await self._change()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body."""
        while True:
            if self._parts:
                parts, self._parts, self._size = self._parts, [], 0
                if self._is_paused and not self.is_lost:
                    self._is_paused = False
                    self._transport.resume_reading()
                yield parts[0] if len(parts) == 1 else b"".join(parts)
            elif self._is_complete:
                return
            elif self.is_lost:
                raise UpstreamError("the replica broke off", is_sent=True)
            else:
                await self._change()

    async def close(self) -> None:
        """Keep the connection where the answer is complete, else cut it."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_complete and self._is_kept and not self.is_lost and len(self._idle) < IDLE_MAX:
            self._idle.append(self)
        else:
            self.abort()

    def abort(self) -> None:
        """Cut it."""
        self._transport.abort()

    async def _change(self) -> None:
        self._wakes = asyncio.get_running_loop().create_future()
        await self._wakes

    def _wake(self) -> None:
        if self._wakes is not None and not self._wakes.done():
            self._wakes.set_result(None)

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._wake()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()
        self._wake()

    # -- httptools' side

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._size += len(body)
        if self._size > BUFFER_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._is_complete = True
        self._is_kept = self._parser.should_keep_alive()  # later it speaks of the next message
