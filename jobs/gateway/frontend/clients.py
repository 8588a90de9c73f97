"""The caller's end of one request over ASGI: a `Client` that notices disconnects and buffers little.

uvicorn's `send` waits while the connection's buffer is above 64 KiB, so at most that and one chunk lie here for a
caller; one that reads nothing for SEND_SECONDS_MAX is closed by the sweep of `connections`, which ends the wait with
ClientGone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from jobs.gateway.frontend.connections import Caller
from jobs.gateway.inference_request import ClientGone, Header

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
MESSAGES_IGNORED_MAX = 1_000  # of a caller who continues to send after the request


class HttpClient:
    """One request's answer. `headers` are sent with it, whatever it is."""

    __slots__ = ("_cycle", "_send", "caller", "has_ended", "has_started", "headers", "receive", "status")

    def __init__(
        self, caller: Caller, cycle: RequestResponseCycle, receive: Receive, send: Send, headers: list[Header]
    ) -> None:
        self.caller, self._cycle, self.receive, self._send, self.headers = caller, cycle, receive, send, headers
        self.has_started = self.has_ended = False
        self.status = 0

    async def start(self, status: int, headers: Sequence[Header]) -> None:
        """Send the head. Raises ClientGone."""
        self._raise_if_gone()
        self.has_started, self.status = True, status
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self.headers]})

    async def send(self, chunk: bytes) -> None:
        """Send a piece of the body. Raises ClientGone."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._raise_if_gone()

    async def end(self) -> None:
        """The body is complete. Raises ClientGone."""
        self.has_ended = True
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        self._raise_if_gone()

    async def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """A whole answer at once; nothing where the caller is gone."""
        if self.caller.is_lost:
            return
        self.has_started = self.has_ended = True
        self.status = status
        await self.caller.answer(self._cycle, status, [*headers, *self.headers], body)

    async def until_gone(self) -> None:
        """Returns when the caller has hung up."""
        for _ in range(MESSAGES_IGNORED_MAX):
            if (await self.receive())["type"] == "http.disconnect":
                return

    def _raise_if_gone(self) -> None:
        if self.caller.is_lost:
            raise ClientGone
