"""One request through a tunnel, as the gateway's other packages use it: `jobs.gateway.engines.upstream.Answer`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

from jobs.gateway.engines.upstream import UpstreamError
from provider_agent.protocol.tunnel.frames import Code, Head, Header, Reset
from provider_agent.protocol.tunnel.streams import Stream


class TunnelAnswer:
    """Receiver of a stream, and its reader. What came and was not read is at most the stream's window."""

    def __init__(self, stream: Stream) -> None:
        self.status = 0
        self.headers: Sequence[Header] = ()
        self._stream = stream
        self._came: deque[bytes] = deque()
        self._has_ended = False
        self._failure: Reset | None = None
        self._waiter: asyncio.Future[None] | None = None
        stream.receiver = self

    # --- from the tunnel

    def head(self, head: Head) -> None:
        """The answer begins."""
        self.status, self.headers = head.status, head.headers
        self._wake()

    def data(self, chunk: bytes) -> None:
        """A piece of it."""
        self._came.append(chunk)
        self._wake()

    def end(self) -> None:
        """It is complete."""
        self._has_ended = True
        self._wake()

    def reset(self, reset: Reset) -> None:
        """It will not be."""
        self._failure = reset
        self._wake()

    def writable(self) -> None:
        """The body was given as a whole: nobody waits to write more."""

    # --- for the gateway

    async def until_head(self, seconds: float) -> None:
        """Raises UpstreamError where there is none within `seconds`; then nothing is left of the request."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self._time_out)
        try:
            while not self.status:
                if self._failure is not None:
                    raise self._error(self._failure)
                await self._wait(loop)
        except asyncio.CancelledError:
            self._stream.reset(Code.CANCELLED, "who asked went away")
            raise
        finally:
            timer.cancel()

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes; pieces that wait are joined."""
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._came:
            if self._failure is not None:
                raise self._error(self._failure)
            if self._has_ended:
                raise StopAsyncIteration
            await self._wait(asyncio.get_running_loop())
        chunk = self._came.popleft()
        if self._came:
            chunk = b"".join((chunk, *self._came))
            self._came.clear()
        self._stream.consumed(len(chunk))
        return chunk

    async def close(self) -> None:
        """Where it has not ended, the request is cancelled at the engine; harmless to repeat."""
        self._came.clear()
        if not self._has_ended:
            self._stream.reset(Code.CANCELLED, "the gateway let go")
            self._failure = self._failure or Reset(Code.CANCELLED, "the gateway let go")
            self._wake()

    # --- below

    async def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waiter = loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _time_out(self) -> None:
        if not self.status and self._failure is None:
            is_sent = self._stream.is_sent
            self._stream.reset(Code.TIMEOUT, "no answer in time")
            self._failure = Reset(
                Code.TIMEOUT if is_sent else Code.REFUSED, "the replica did not begin its answer in time"
            )
            self._wake()

    def _error(self, reset: Reset) -> UpstreamError:
        return UpstreamError(reset.reason or reset.code.name.lower(), is_sent=reset.is_sent or bool(self.status))
