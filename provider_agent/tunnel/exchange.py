"""One request on its way: from a stream of the tunnel to the engine's socket, and the answer back.

Nothing is held beyond the stream's credit: while the engine does not read, no credit is given back; while the gateway
does not read, the engine is not read. A reset from the gateway closes the connection, so that the engine stops.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from provider_agent.protocol.tunnel.frames import OWN_REQUEST, Code, Head, Header, Kind, Open, Reset, pack_head
from provider_agent.protocol.tunnel.streams import OUT_BYTES_HIGH, Stream
from provider_agent.tunnel.counting import Counts, UsageText
from provider_agent.tunnel.engine import Connection, Engine, EngineAway
from provider_agent.tunnel.responses import HOP_BY_HOP, BadResponse, ResponseReader

HEAD_SECONDS_MAX: Final = 900.0  # until the engine begins its answer; the gateway has shorter ones of its own
SILENCE_SECONDS_MAX: Final = 300.0  # within an answer
EXCHANGE_SECONDS_MAX: Final = 4 * 3600.0
BODY_BYTES_MAX: Final = 64 * 1024 * 1024  # of a request
METHODS: Final = frozenset({"GET", "POST"})
PREFIXES: Final = ("/v1/", "/souk/v1/")
HEALTH: Final = "/health"
OURS: Final = HOP_BY_HOP | {
    b"host",
    b"expect",
    OWN_REQUEST[0],
}  # headers that are not passed on: this end writes its own


class Refusal(Exception):
    """The request is not one that goes to an engine."""


class Exchange:
    """Receiver of a stream, and sink of its response."""

    def __init__(self, stream: Stream, request: Open, engine: Engine, counts: Counts, over: Callable[[], None]) -> None:
        self._stream = stream
        self._engine = engine
        self._counts = counts
        self._is_own = is_own(request)  # the gateway's: nobody uses the replica
        self._over = over
        self._head, self._left = request_head(request)  # bytes of the body that have not come
        self._waiting: deque[bytes] = deque()  # for the engine to read
        self._connection: Connection | None = None
        self._reader = ResponseReader(self)
        self._usage = UsageText()
        self._is_post = request.method == "POST"
        self._has_usage = self._was_sent = self._was_counted = False
        self._is_reading = True  # the engine
        self._has_head = False
        self.is_over = False
        self._started_at = self._received_at = asyncio.get_running_loop().time()
        stream.receiver = self
        self._connecting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Send it on; in a moment, so that what comes with its head goes with it."""
        asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        if self.is_over:
            return
        connection = self._engine.take_idle()
        if connection is not None:
            self._use(connection)
        else:
            self._connecting = asyncio.create_task(self._connect())

    # --- from the gateway

    def head(self, head: Head) -> None:
        """Only answers have one; Mux lets none through to this end."""

    def data(self, chunk: bytes) -> None:
        """A piece of the request's body."""
        self._left -= len(chunk)
        self._counts.bytes_in += len(chunk)
        if self._left < 0:
            self.fail(Code.BROKEN, "the request's body is longer than its declared length")
            return
        self._waiting.append(chunk)
        self.on_engine_writable()

    def end(self) -> None:
        """The request is complete."""
        if self._left > 0:
            self.fail(Code.BROKEN, "the request's body is shorter than its declared length")

    def reset(self, reset: Reset) -> None:
        """The gateway, or the way to it, let go: so does the engine."""
        self._leave(has_failed=True)

    def writable(self) -> None:
        """The gateway reads again."""
        if not self._is_reading and self._connection is not None:
            self._is_reading = True
            self._received_at = asyncio.get_running_loop().time()
            self._connection.transport.resume_reading()

    # --- from the engine

    def on_engine_writable(self) -> None:
        """It takes more of the body."""
        connection = self._connection
        if connection is None or connection.is_paused or not self._waiting:
            return
        data = b"".join(self._waiting)  # at most the stream's window
        self._waiting.clear()
        connection.transport.write(data)
        size = len(data) - len(self._head)
        self._head = b""
        if size:
            self._stream.consumed(size)

    def on_engine_data(self, data: bytes) -> None:
        """A piece of its answer."""
        self._received_at = asyncio.get_running_loop().time()
        try:
            self._reader.feed(data)
        except (BadResponse, ValueError) as error:
            self.fail(Code.BROKEN, f"the engine's answer cannot be passed on: {error}")

    def on_engine_closed(self) -> None:
        """It closed the connection."""
        try:
            self._reader.close()
        except BadResponse as error:
            self._connection = None
            self.fail(Code.BROKEN, str(error))

    def on_head(self, status: int, headers: Sequence[Header]) -> None:
        """Sink: the answer begins."""
        payload = pack_head(Head(status, headers))  # before anything is sent: ValueError where it cannot be packed
        self._has_head = True
        self._has_usage = self._is_post and status == 200
        self._stream.begin(Kind.HEAD, payload)

    def on_data(self, chunk: bytes) -> None:
        """Sink: a piece of it."""
        if self.is_over:
            return
        self._counts.bytes_out += len(chunk)
        if self._has_usage and not self._is_own:
            self._usage.add(chunk)
        self._stream.write(chunk)
        if self._stream.out_bytes > OUT_BYTES_HIGH and self._is_reading and self._connection is not None:
            self._is_reading = False
            self._connection.transport.pause_reading()

    def on_end(self) -> None:
        """Sink: it is complete."""
        if self.is_over:
            return
        if self._has_usage and not self._is_own:
            self._counts.add_usage(self._usage.text)
            self._was_counted = True
        self._stream.finish()
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_gone:
            if not self._is_reading:
                connection.transport.resume_reading()
            if self._reader.can_go_on and self._left == 0 and not self._waiting:
                self._engine.give_back(connection)
            else:
                connection.close()
        self._leave(has_failed=False)

    # --- ends

    def fail(self, code: Code, why: str) -> None:
        """Reset the stream to the gateway, and close the connection to the engine."""
        if self.is_over:
            return
        self._stream.reset(code, why)
        self._leave(has_failed=True)

    def check_time(self, now: float) -> None:
        """End it where the engine, or all of it, takes too long."""
        if now - self._started_at > EXCHANGE_SECONDS_MAX:
            self.fail(Code.TIMEOUT, "the request took too long")
        elif not self._has_head and now - self._started_at > HEAD_SECONDS_MAX:
            self.fail(Code.TIMEOUT, "the engine did not begin an answer")
        elif self._has_head and self._is_reading and now - self._received_at > SILENCE_SECONDS_MAX:
            self.fail(Code.TIMEOUT, "the engine fell silent within its answer")

    # --- below

    async def _connect(self) -> None:
        try:
            connection = await self._engine.connect()
        except (EngineAway, OSError) as error:
            self.fail(Code.REFUSED, str(error))
            return
        if self.is_over:
            connection.close()
        else:
            self._use(connection)

    def _use(self, connection: Connection) -> None:
        self._connection = connection
        connection.exchange = self
        self._was_sent = True
        if self._is_own:
            self._counts.own += 1
        else:
            self._counts.requests += 1
        self._waiting.appendleft(self._head)
        self.on_engine_writable()

    def _leave(self, *, has_failed: bool) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._counts.failed += has_failed
        self._counts.without_usage += self._was_sent and not self._is_own and not self._was_counted
        self._waiting.clear()
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_gone:
            connection.close()
        self._over()


def is_own(request: Open) -> bool:
    """Whether the gateway asks for itself. Callers cannot say so: a gateway passes on none of their headers."""
    return any((name.lower(), value) == OWN_REQUEST for name, value in request.headers)


def request_head(request: Open) -> tuple[bytes, int]:
    """What the engine is sent first, and how long the body is. Raises Refusal."""
    if request.method not in METHODS or not is_passable(request.path):
        raise Refusal(f"{request.method} {request.path[:100]} does not go to an engine")
    lengths = [value for name, value in request.headers if name.lower() == b"content-length"]
    if len(lengths) > 1 or any(not value.isdigit() or len(value) > 10 for value in lengths):
        raise Refusal("a request whose length is not clear")
    length = int(lengths[0]) if lengths else 0
    if length > BODY_BYTES_MAX:
        raise Refusal("a request that is too long")
    lines = [b"%b: %b\r\n" % (name, value) for name, value in request.headers if name.lower() not in OURS]
    first = f"{request.method} {request.path} HTTP/1.1\r\nHost: engine\r\n".encode("ascii")
    return first + b"".join(lines) + b"\r\n", length


def is_passable(path: str) -> bool:
    """Whether a path is one of an engine's own: never one that means another once it is read."""
    plain, _, _ = path.partition("?")
    if any(bad in plain for bad in ("//", "/.", "\\", "%", "#", ";")):
        return False
    return plain == HEALTH or plain.startswith(PREFIXES)
