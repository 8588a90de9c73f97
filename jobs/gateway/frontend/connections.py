"""Connections of callers: bounded in number, bytes and time, whatever the other end does or does not do.

uvicorn's httptools protocol has no limit on headers, on how slowly a request may come, or on how long an answer may
lie unread. Here one sweep each second closes what takes too long (no timer a connection), and counts close what is
too large. What it closes for slowness after an answer began is cut, and the handler gets it as a caller who hung up.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from jobs.gateway.errors import ApiError
from jobs.gateway.inference_request import Header

HEADER_BYTES_MAX = 64 * 1024  # and of everything else that is no body: chunk sizes, trailers
HEADER_SECONDS_MAX = 10.0  # from a request's first byte, or the connection's begin, to the end of its head
BODY_SECONDS_MAX = 120.0  # to the end of its body
SEND_SECONDS_MAX = 30.0  # so long nothing of a full buffer is read
IDLE_SECONDS_MAX = 75  # between two requests
IDLE_SECONDS_CROWDED = 2.0  # when most of the connections are taken
CROWDED = 0.8
PIPELINE_MAX = 16
SEND_BUFFER_BYTES = 256 * 1024  # in the kernel, beside uvloop's 64 KiB
TUNNELS_RESERVED = 1_000  # connections beyond the bound, for agents
SWEEP_SECONDS = 1.0

logger = logging.getLogger(__name__)


class Caller(HttpToolsProtocol):
    """One connection. `reading_since`: a request is coming; `stuck_since`: what was written is not read."""

    connections_max = 10_000

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_lost = False
        self.is_in_head = True
        self.reading_since: float | None = self.loop.time()
        self.stuck_since: float | None = None
        self.idle_since: float | None = None
        self.closing_since: float | None = None
        self._overhead = 0  # bytes of the request that are not its body
        self._is_between, self._is_counted = True, False  # requests

    @property
    def is_beyond_bound(self) -> bool:
        """Whether this is one of the connections that are kept for agents."""
        return len(self.connections) > self.connections_max

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self.connections_max + self.spare_connections():
            self.turn_away(transport, "Too many connections; please try again.")
            return
        super().connection_made(transport)
        connection_socket = transport.get_extra_info("socket")
        if connection_socket is not None and connection_socket.family != socket.AF_UNIX:
            connection_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)

    def spare_connections(self) -> int:
        """How many there may be beyond the bound."""
        return TUNNELS_RESERVED

    def turn_away(self, transport: asyncio.Transport, message: str) -> None:
        """Answer a connection that is one too many, and close it."""
        transport.write(self.raw_error(503, "server_overloaded", message, 1))
        transport.close()
        self.transport, self.is_lost = transport, True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self.flow is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.is_lost:
            return
        self.idle_since = None
        if self.reading_since is None and (self.cycle is None or self.cycle.response_complete):
            self.reading_since, self.is_in_head = self.loop.time(), True
        self._overhead += len(data)
        if self._is_between:  # the request begins with these bytes, and all of them count
            self._overhead, self._is_between, self._is_counted = len(data), False, True
        super().data_received(data)
        if self._overhead > HEADER_BYTES_MAX:
            self.refuse(431, "headers_too_large", f"Headers may have {HEADER_BYTES_MAX // 1024} KiB.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._overhead = self._overhead if self._is_counted else 0
        self._is_counted = False
        self.is_in_head = True
        if self.reading_since is None:
            self.reading_since = self.loop.time()
        self.scope["caller"] = self  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        self.is_in_head = False
        super().on_headers_complete()
        self.scope["cycle"] = self.cycle  # type: ignore[typeddict-unknown-key]
        if len(self.pipeline) > PIPELINE_MAX:
            self.transport.abort()

    def on_body(self, body: bytes) -> None:
        self._overhead -= 2 * len(body)  # a body may be framed in chunks as small as their frames
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.reading_since, self._is_between = None, True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """uvicorn's, without its timer for each request: the sweep closes who is idle."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self.reading_since is None:
            self.idle_since = self.loop.time()

    async def answer(self, cycle: RequestResponseCycle, status: int, headers: Iterable[Header], body: bytes) -> None:
        """A whole answer in one write, of headers that are the gateway's own; uvicorn's three calls cost far more."""
        if self.flow.write_paused and not cycle.disconnected:
            await self.flow.drain()
        if cycle.disconnected:
            return
        parts = [STATUS_LINE[status], *[b"%b: %b\r\n" % header for header in headers]]
        if (b"connection", b"close") in headers:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"content-length: %d\r\n\r\n" % len(body))
        if cycle.scope["method"] != "HEAD":
            parts.append(body)
        self.transport.write(b"".join(parts))
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def pause_writing(self) -> None:
        self.stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.stuck_since = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, "invalid_http", msg)

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer for the whole connection and close it; where an answer has begun, close it only."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        is_free = cycle is None or cycle.response_complete if self.is_in_head else not cycle.response_started
        if is_free and not self.pipeline:
            self.transport.write(self.raw_error(status, code, message))
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()
        self.transport.close()

    def judge(self, now: float, idle_seconds: float) -> None:
        """Close it if its time is up."""
        if self.transport.is_closing():
            self.closing_since = self.closing_since or now
            if now - self.closing_since > SEND_SECONDS_MAX:
                self.transport.abort()
        elif self.stuck_since is not None and now - self.stuck_since > SEND_SECONDS_MAX:
            self.transport.abort()
        elif self.reading_since is not None:  # not of a pipelined request: that one is not read until its turn
            if not self.pipeline and self.is_late(now, self.reading_since):
                self.refuse(408, "request_timeout", "The request did not come in time.")
        elif self.idle_since is not None and now - self.idle_since > idle_seconds:
            self.transport.close()

    def is_late(self, now: float, reading_since: float) -> bool:
        """Whether the request that is being read should have come by now."""
        return now - reading_since > (HEADER_SECONDS_MAX if self.is_in_head else BODY_SECONDS_MAX)

    def raw_error(self, status: int, code: str, message: str, retry_after: int | None = None) -> bytes:
        """A whole answer, of a connection that is closed after it."""
        kind = "invalid_request_error" if status < 500 else "server_error"
        return raw_answer(status, code, ApiError(status, code, message, type=kind).body(), retry_after)


class Server(uvicorn.Server):
    """uvicorn that sweeps its connections, and lets requests end before it closes the tunnels that they need."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        drain: Callable[[], Awaitable[None]],
        close: Callable[[], Awaitable[None]],
        on_listening: Callable[[int], None],
    ) -> None:
        super().__init__(config)
        self._drain, self._close, self._on_listening = drain, close, on_listening
        self._swept_at = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's; then report the port."""
        await super().startup(sockets)
        if self.started:
            listening = (sockets or self.servers[0].sockets)[0]
            self._on_listening(listening.getsockname()[1])

    async def on_tick(self, counter: int) -> bool:
        """uvicorn's own clock, ten times a second."""
        now = asyncio.get_running_loop().time()
        if now - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = now
            self.sweep(now)
        return await super().on_tick(counter)

    def sweep(self, now: float) -> None:
        """Judge every caller's connection."""
        connections = self.server_state.connections
        for connection in list(connections):
            if isinstance(connection, Caller):
                is_crowded = len(connections) > CROWDED * connection.connections_max
                connection.judge(now, IDLE_SECONDS_CROWDED if is_crowded else float(IDLE_SECONDS_MAX))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the serving, and not the process besides, as uvicorn's own would."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """No new connections; the requests under way end; then everything else."""
        for server in self.servers:
            server.close()
        await self._drain()
        try:
            await super().shutdown(sockets)
        finally:
            await self._close()


def raw_answer(status: int, code: str, body: bytes, retry_after: int | None = None) -> bytes:
    """The bytes of an answer with JSON in it, after which the connection is closed."""
    retry = f"retry-after: {retry_after}\r\n" if retry_after else ""
    return (
        f"HTTP/1.1 {status} {code}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"{retry}connection: close\r\n\r\n"
    ).encode() + body
