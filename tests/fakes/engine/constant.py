"""The same bytes for every request, ready made: what a gateway adds is measured over something that takes no time.

A POST whose body requests a stream gets `tokens` chunks, every `token_ms` one, of all streams by one timer; every
other request gets a whole answer. Only requests with a Content-Length are understood.
"""

from __future__ import annotations

import asyncio
import json
from typing import cast

from tests.fakes.engine import asks, shapes
from tests.fakes.engine.http import head

HEAD_BYTES_MAX = 64 * 1024
TOKENS_IN_A_WRITE_MAX = 64  # of one stream that is not paced, before another has its turn


class Prepared:
    """The bytes of one chat's answer, whole and in chunks."""

    def __init__(self, tokens: int) -> None:
        model = asks.Model(answer_tokens=tokens)
        body = {"messages": [{"role": "user", "content": "say it"}], "stream_options": {"include_usage": True}}
        ask = asks.read("chat", body, model)
        counts = shapes.usage(ask, tokens)
        answer = shapes.dump(shapes.whole(ask, 1, model.name, counts))
        length = b"content-length: %d\r\n" % len(answer)
        self.whole = head(200, b"application/json", length) + answer
        chunks, choice = shapes.Chunks(ask, 1, model.name), ask.choices[0]
        events = [chunks.token(choice, token) for token in choice.tokens]
        self.begin = head(200, b"text/event-stream", b"transfer-encoding: chunked\r\n") + _chunk(chunks.first(choice))
        self.chunks = [_chunk(data) for data in events]
        self.end = b"".join(map(_chunk, (chunks.last(choice), chunks.usage(counts), shapes.DONE))) + b"0\r\n\r\n"
        self.stats = {"requests": 0, "streams": 0, "open": 0}


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Constant(asyncio.Protocol):
    """One connection."""

    __slots__ = ("_at", "_buffer", "_is_paused", "_prepared", "_ticker", "_transport")

    def __init__(self, prepared: Prepared, ticker: Ticker) -> None:
        self._prepared, self._ticker, self._buffer = prepared, ticker, b""
        self._at: int | None = None  # the next chunk of the stream that is being sent
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._prepared.stats["open"] += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._prepared.stats["open"] -= 1
        self._ticker.streams.pop(self, None)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._at is not None and not self._ticker.seconds:
            self._go_on()

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data if self._buffer else data
        while data:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > HEAD_BYTES_MAX:
                    self._transport.abort()
                break
            length, body_at = 0, end + 4
            if data[:1] == b"P":
                top = data[:end].lower()
                found = top.find(b"content-length:")
                if found >= 0:
                    length = int(top[found + 15 : top.find(b"\r\n", found) if b"\r\n" in top[found:] else end])
            if len(data) < body_at + length:
                break
            self._answer(data, body_at, length)
            data = data[body_at + length :]
        self._buffer = data

    def _answer(self, data: bytes, at: int, length: int) -> None:
        prepared = self._prepared
        if not length and data.startswith(b"GET /fake/stats"):
            body = json.dumps(prepared.stats).encode()
            self._transport.write(head(200, b"application/json", b"content-length: %d\r\n" % len(body)) + body)
            return
        prepared.stats["requests"] += 1
        if length and (b'"stream":true' in data[at : at + length] or b'"stream": true' in data[at : at + length]):
            prepared.stats["streams"] += 1
            self._transport.write(prepared.begin)
            self._at = 0
            if self._ticker.seconds:
                self._ticker.add(self)
            else:
                self._go_on()
        else:
            self._transport.write(prepared.whole)

    def step(self) -> bool:
        """The next chunk of the stream; False after its last."""
        assert self._at is not None
        if self._is_paused:
            return True
        if self._at < len(self._prepared.chunks):
            self._transport.write(self._prepared.chunks[self._at])
            self._at += 1
            return True
        self._transport.write(self._prepared.end)
        self._at = None
        return False

    def _go_on(self) -> None:
        for _ in range(TOKENS_IN_A_WRITE_MAX):
            if self._is_paused or self._at is None or not self.step():
                return
        asyncio.get_running_loop().call_soon(self._go_on)


class Ticker:
    """One timer for the chunks of every stream."""

    def __init__(self, token_ms: float) -> None:
        self.seconds = token_ms / 1000
        self.streams: dict[Constant, None] = {}
        self._handle: asyncio.TimerHandle | None = None

    def add(self, stream: Constant) -> None:
        """From the next tick on it gets a chunk each."""
        self.streams[stream] = None
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(self.seconds, self._tick)

    def _tick(self) -> None:
        self._handle = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        for stream in list(self.streams):
            if not stream.step():
                del self.streams[stream]
        if self.streams:
            self._handle = loop.call_at(began + self.seconds, self._tick)
