"""HTTP/1.1 for the engine: a connection's requests are answered one after the other; a hang-up cancels."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

import httptools

PIPELINED_MAX = 16  # requests of one connection that wait
BODY_BYTES_MAX = 64 * 1024 * 1024
REASONS = {200: b"OK", 400: b"Bad Request", 404: b"Not Found", 429: b"Too Many Requests", 503: b"Service Unavailable"}


@dataclass
class Request:
    """One request, read to its end."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytearray = field(default_factory=bytearray)


class Connection(asyncio.Protocol):
    """One caller. `answer` is cancelled when the caller hangs up."""

    def __init__(self, answer: Callable[[Request, Connection], Awaitable[None]], alive: set[Connection]) -> None:
        self._answer, self._alive = answer, alive
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._now: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._url = b""
        self._headers: dict[str, str] = {}
        self._can_write = asyncio.Event()
        self._can_write.set()
        self.is_chunked = False
        self.transport: asyncio.Transport

    # -- callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._alive.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._alive.discard(self)
        self._can_write.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    # -- callbacks of httptools

    def on_message_begin(self) -> None:
        self._url, self._headers = b"", {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        method = self._parser.get_method().decode("latin-1")
        self._now = Request(method, self._url.decode("latin-1").partition("?")[0], self._headers)

    def on_body(self, body: bytes) -> None:
        assert self._now is not None
        self._now.body += body
        if len(self._now.body) > BODY_BYTES_MAX:
            self.transport.abort()

    def on_message_complete(self) -> None:
        assert self._now is not None
        self._waiting.append(self._now)
        if len(self._waiting) > PIPELINED_MAX:
            self.transport.abort()
        elif self._task is None:
            self._task = asyncio.ensure_future(self._work())

    async def _work(self) -> None:
        try:
            while self._waiting and not self.transport.is_closing():
                request = self._waiting.popleft()
                await self._answer(request, self)
                if request.headers.get("connection", "").lower() == "close":
                    self.transport.close()
        finally:
            self._task = None

    # -- what the engine says

    async def send(self, data: bytes) -> None:
        """Write, and wait while the caller does not read."""
        self.transport.write(data)
        if not self._can_write.is_set():
            await self._can_write.wait()

    async def whole(self, status: int, body: bytes, kind: bytes = b"application/json") -> None:
        """A response in one piece."""
        await self.send(head(status, kind, b"content-length: %d\r\n" % len(body)) + body)

    async def begin(self, status: int = 200, kind: bytes = b"text/event-stream; charset=utf-8") -> None:
        """The head of a response in chunks."""
        await self.send(head(status, kind, b"transfer-encoding: chunked\r\ncache-control: no-cache\r\n"))

    async def chunk(self, data: bytes) -> None:
        """One chunk of it."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """Its end."""
        await self.send(b"0\r\n\r\n")


def head(status: int, kind: bytes, more: bytes = b"") -> bytes:
    """A response's head."""
    return b"HTTP/1.1 %d %b\r\nserver: fake\r\ncontent-type: %b\r\n%b\r\n" % (
        status,
        REASONS.get(status, b"Error"),
        kind,
        more,
    )
