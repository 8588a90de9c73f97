"""One request of the web process, as an ASGI application around Django's WSGI handler.

    1  read      the whole body, at the visitor's pace, without a thread            (bodies.py)
    2  answer    Django, in one of a few threads; nobody else's slowness holds one
    3  wait      a poll for which there is nothing new yet, without a thread        (polls.py); then 2 again
    4  send      at the reader's pace, without a thread; files by the piece

Streams that are made as they go (a chat's answer, a long table) have threads of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import close_old_connections
from django.http import FileResponse, StreamingHttpResponse

from marketplace.config.web.bodies import BodiesFull, Body, BodyReader, BodyTooLong, Receive, VisitorGone
from marketplace.config.web.environ import environ_of
from marketplace.config.web.polls import HeldPolls

REQUESTS_WAITING_MAX = 1_000  # for a thread; beyond it a request is refused at once
STREAMS_MAX = 32  # streams that are being made
FILE_THREADS = 8  # that read pieces of files: streams last for minutes, and a page's files must not wait for them
STREAM_BYTES_MAX = 8 * 1024 * 1024  # of one stream that were made and not yet sent: then its thread waits
FILE_CHUNK_BYTES = 256 * 1024
BUSY_SECONDS = 1  # after which a refused request may be sent again

log = logging.getLogger(__name__)
Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass
class Answer:
    """What Django made of a request. `source`: where what is not in `content` comes from."""

    status: int
    headers: list[tuple[bytes, bytes]]
    content: bytes = b""
    source: StreamingHttpResponse | None = None
    poll: Any = None


class WebApplication:
    """Made in the event loop that serves it."""

    def __init__(self, wsgi: Wsgi, *, threads: int, folder: Path) -> None:
        self._wsgi = wsgi
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="request")
        self._streams = ThreadPoolExecutor(STREAMS_MAX, thread_name_prefix="stream")
        self._files = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="file")
        self._bodies = BodyReader(folder)
        self._polls = HeldPolls()
        self._calls = self._streaming = 0

    async def drain(self) -> None:
        """The process stops: who waits for something new is answered now."""
        self._polls.release()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        body: Body | None = None
        try:
            body = await self._bodies.read(scope, receive)
            answer = await self._answer(scope, body, receive)
            await self._send(answer, scope, send)
        except VisitorGone:
            log.debug("A visitor hung up.")
        except BodyTooLong as error:
            await _refuse(send, 413, "body_too_large", str(error))
        except (BodiesFull, _Busy):
            await _refuse(send, 503, "busy", "The marketplace has too much to do. Try again in a moment.")
        finally:
            if body is not None:
                self._bodies.close(body)

    async def _answer(self, scope: Scope, body: Body, receive: Receive) -> Answer:
        loop = asyncio.get_running_loop()
        answer = await self._call(scope, body)
        until = loop.time() + answer.poll.seconds if answer.poll else 0.0
        while answer.poll is not None and not self._polls.is_stopping and (left := until - loop.time()) > 0:
            await self._wait(answer.poll, left, receive)
            answer = await self._call(scope, body)
        return answer

    async def _wait(self, poll: Any, seconds: float, receive: Receive) -> None:
        """Until there may be news; raises VisitorGone as soon as nobody waits any more."""
        news = asyncio.ensure_future(self._polls.wait(poll, seconds))
        gone = asyncio.ensure_future(receive())
        try:
            done, _ = await asyncio.wait({news, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (news, gone):
                each.cancel()
        if news not in done:
            raise VisitorGone

    async def _call(self, scope: Scope, body: Body) -> Answer:
        if self._calls >= REQUESTS_WAITING_MAX:
            raise _Busy
        self._calls += 1
        try:
            body.file.seek(0)
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._call_django, scope, body)
        finally:
            self._calls -= 1

    def _call_django(self, scope: Scope, body: Body) -> Answer:
        started: list[Any] = []
        response: Any = self._wsgi(environ_of(scope, body), lambda *given: started.extend(given))
        status, headers = started[0], started[1]
        pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        answer = Answer(int(status.split(" ", 1)[0]), pairs, poll=getattr(response, "poll", None))
        if getattr(response, "streaming", False):
            answer.source = response
            close_old_connections()  # of this thread; the stream is made in another one
            return answer
        try:
            answer.content = b"".join(response)
        finally:
            response.close()
        return answer

    async def _send(self, answer: Answer, scope: Scope, send: Send) -> None:
        start = {"type": "http.response.start", "status": answer.status, "headers": answer.headers}
        if answer.source is None:
            await send(start)
            await send({"type": "http.response.body", "body": answer.content})
            return
        is_file = isinstance(answer.source, FileResponse)
        if not is_file and self._streaming >= STREAMS_MAX:
            self._threads.submit(answer.source.close)
            raise _Busy
        async with contextlib.aclosing(self._pieces_of(answer.source, is_file)) as pieces:
            await send(start)
            async for piece in pieces:
                if scope["cycle"].disconnected:
                    raise VisitorGone
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _pieces_of(self, source: StreamingHttpResponse, is_file: bool) -> AsyncGenerator[bytes, None]:
        if is_file:
            source.block_size = FILE_CHUNK_BYTES  # type: ignore[attr-defined]
            pieces = iter(source)
            loop = asyncio.get_running_loop()
            try:
                while piece := await loop.run_in_executor(self._files, next, pieces, b""):
                    yield piece
            finally:
                await asyncio.shield(loop.run_in_executor(self._files, source.close))
            return
        self._streaming += 1
        stream = _Stream(source, asyncio.get_running_loop())
        made = self._streams.submit(stream.make)
        try:
            async for piece in stream.pieces():
                yield piece
        finally:
            stream.give_up()
            await asyncio.shield(asyncio.wrap_future(made))
            self._streaming -= 1


class StreamBroken(Exception):
    """A stream ended before its end: the connection is cut, so that nobody takes what came for all of it."""


class _Busy(Exception):
    """There is more to do than threads for it."""


class _Stream:
    """What one thread makes and the event loop sends; the thread waits while STREAM_BYTES_MAX are unsent."""

    def __init__(self, source: StreamingHttpResponse, loop: asyncio.AbstractEventLoop) -> None:
        self._source, self._loop = source, loop
        self._ready: asyncio.Queue[bytes | None] = asyncio.Queue()  # None: it broke off
        self._changed = threading.Condition()
        self._unsent = 0
        self._is_given_up = False

    def make(self) -> None:
        """In a thread: everything, one piece after the other; b"" is the end."""
        end: bytes | None = None
        try:
            pieces: Iterator[bytes] = iter(self._source)
            for piece in pieces:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_given_up or self._unsent < STREAM_BYTES_MAX)
                    if self._is_given_up:
                        return
                    self._unsent += len(piece)
                if piece:
                    self._loop.call_soon_threadsafe(self._ready.put_nowait, piece)
            end = b""
        except Exception:
            log.exception("A stream broke off.")
        finally:
            self._source.close()
            close_old_connections()
            self._loop.call_soon_threadsafe(self._ready.put_nowait, end)

    async def pieces(self) -> AsyncIterator[bytes]:
        """As they are made."""
        while piece := await self._ready.get():
            yield piece
            with self._changed:
                self._unsent -= len(piece)
                self._changed.notify()
        if piece is None:
            raise StreamBroken

    def give_up(self) -> None:
        """Nobody reads it any more."""
        with self._changed:
            self._is_given_up = True
            self._changed.notify()


async def _refuse(send: Send, status: int, code: str, message: str) -> None:
    content = json.dumps({"code": code, "message": message, "details": {}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    headers += [(b"connection", b"close")] + [(b"retry-after", str(BUSY_SECONDS).encode())] * (status == 503)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
