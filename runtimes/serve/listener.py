"""The replica's only entry point: a Unix socket that forwards the requests of callers to the engine.

One connection carries one request, so its end is the request's end whatever form the answer has, and what is in flight
is what is connected. Bytes pass as they come, with back-pressure both ways; a disconnect cancels. Before the replica is
ready and while it drains, requests are refused with 503. Only the paths that callers need lead to the engine: what else
its server has, such as unloading a model, is not reached from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import time
from pathlib import Path

HEAD_BYTES_MAX = 64 * 1024
HEAD_SECONDS_MAX = 30.0
CHUNK_BYTES = 64 * 1024
CONNECTIONS_MAX = 4096
CONNECT_SECONDS_MAX = 10.0
LINGER_SECONDS_MAX = 5.0
SOCKET_MODE = 0o600  # the agent is the same user, or root
POST_PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings"})
GET_PATHS = frozenset({"/v1/models"})
OWN_HEADER = "x-souk-own"  # of the runtime's own requests, which come through before others may
DROPPED_HEADERS = frozenset({"connection", "keep-alive", "proxy-connection", "upgrade", "te", "expect", OWN_HEADER})


class Refusal(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code

    def as_bytes(self) -> bytes:
        """The whole answer, in OpenAI's form."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": str(self), "type": kind, "param": None, "code": self.code}
        body = json.dumps({"error": error}).encode()
        retry = "Retry-After: 1\r\n" if self.status == 503 else ""
        head = f"HTTP/1.1 {self.status} Refused\r\nContent-Type: application/json\r\n{retry}"
        return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


class Listener:
    """`state` is closed until `open`, and draining from `drain` on."""

    def __init__(self, engine_socket: str, *, extra_paths: frozenset[str] = frozenset()) -> None:
        self.state = "closed"
        self.requests = 0
        self.errors = 0  # answers of 5xx, and requests without an answer
        self.in_flight = 0
        self.moved_at = time.monotonic()  # when the engine last sent anything to anybody
        self._engine_socket = engine_socket
        self._post_paths = POST_PATHS | extra_paths
        self._pass = secrets.token_hex(16)
        self._connections = 0
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._server: asyncio.Server | None = None
        self._path = ""

    @property
    def own_header(self) -> str:
        """A header line with which the runtime's own requests are let in, and not counted."""
        return f"{OWN_HEADER}: {self._pass}\r\n"

    async def listen(self, path: str) -> None:
        """Make the socket; only this user and root can ever connect to it."""
        _remove(path)
        self._path = path
        old = os.umask(0o777 & ~SOCKET_MODE)
        try:
            self._server = await asyncio.start_unix_server(self._attend, path, limit=HEAD_BYTES_MAX)
        finally:
            os.umask(old)

    def open(self) -> None:
        """Let requests in."""
        self.state = "open"

    async def drain(self, seconds: float) -> bool:
        """Refuse what comes, and wait for what is there; whether all of it ended in time."""
        self.state = "draining"
        try:
            async with asyncio.timeout(seconds):
                await self._emptied.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            _remove(self._path)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            try:
                await self._pass_on(reader, writer)
            except Refusal as refusal:
                writer.write(refusal.as_bytes())
            await _linger(reader, writer)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the agent hung up
        finally:
            self._connections -= 1
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # 1. The head, whole and within bounds.
        try:
            async with asyncio.timeout(HEAD_SECONDS_MAX):
                raw = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise Refusal(431, "headers_too_large", "The request's head is too large.") from error
        # 2. Whether it may pass.
        is_own, is_counted, head = self._read_head(raw)
        if self._connections > CONNECTIONS_MAX:
            raise Refusal(503, "replica_busy", f"More than {CONNECTIONS_MAX} requests are open.")
        if self.state != "open" and not is_own:
            raise Refusal(503, f"replica_{self.state}", f"The replica is {self.state}.")
        # 3. To the engine and back.
        if is_own or not is_counted:
            await self._splice(head, reader, writer)
            return
        self.requests += 1
        self.in_flight += 1
        self._emptied.clear()
        try:
            await self._splice(head, reader, writer)
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._emptied.set()

    def _read_head(self, raw: bytes) -> tuple[bool, bool, bytes]:
        """Whether it is the runtime's own, whether it counts as a request, and the head to send on; raises Refusal."""
        first, *lines = raw[:-4].split(b"\r\n")
        parts = first.split(b" ")
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
            raise Refusal(400, "invalid_request", "This is not HTTP/1.1.")
        method, path = parts[0].decode("latin-1"), parts[1].decode("latin-1").partition("?")[0]
        if not ((method == "POST" and path in self._post_paths) or (method == "GET" and path in GET_PATHS)):
            raise Refusal(404, "not_found", f"There is no {method} {path[:100]} here.")
        kept, passed = [f"{method} {path} HTTP/1.1".encode("latin-1")], ""
        for line in lines:
            name, _, value = line.partition(b":")
            if name.lower().decode("latin-1") == OWN_HEADER:
                passed = value.strip().decode("latin-1")
            if name.lower().decode("latin-1") not in DROPPED_HEADERS:
                kept.append(line)
        is_own = hmac.compare_digest(passed.encode("latin-1"), self._pass.encode())
        return is_own, method == "POST", b"\r\n".join([*kept, b"Connection: close", b"", b""])

    async def _splice(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                engine_reader, engine_writer = await asyncio.open_unix_connection(
                    self._engine_socket, limit=CHUNK_BYTES
                )
        except (OSError, TimeoutError) as error:
            self.errors += 1
            raise Refusal(502, "engine_gone", "The engine does not answer.") from error
        up = asyncio.create_task(_copy(reader, engine_writer, head))
        down = asyncio.create_task(self._answer(engine_reader, writer))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if down.done():
                await down
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            engine_writer.transport.abort()

    async def _answer(self, engine: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_first = True
        try:
            while chunk := await engine.read(CHUNK_BYTES):
                if is_first and chunk[9:10] == b"5":
                    self.errors += 1
                is_first = False
                self.moved_at = time.monotonic()
                writer.write(chunk)
                await writer.drain()
        finally:
            if is_first:
                self.errors += 1
        if is_first:
            raise Refusal(502, "engine_gone", "The engine ended the request without an answer.")


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send the end of the stream, and drop what the caller still sends: closed on it, it would lose the answer too."""
    writer.write_eof()
    async with asyncio.timeout(LINGER_SECONDS_MAX):
        while await reader.read(CHUNK_BYTES):
            pass


def _remove(path: str) -> None:
    """A socket file remains in its folder after its listener has closed."""
    Path(path).unlink(missing_ok=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
    """Send the head and what follows; returns when the caller hangs up, or hands nothing more to a closed engine."""
    writer.write(head)
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        with contextlib.suppress(ConnectionError):  # the engine answered before it had read all: its answer counts
            await writer.drain()
