"""One request of the web process, without its server: polls when the process stops, streams that break."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpResponse, StreamingHttpResponse

from marketplace.config.web import polls
from marketplace.config.web.application import StreamBroken, WebApplication

SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "GET",
    "path": "/logs",
    "raw_path": b"/logs",
    "query_string": b"",
    "headers": [],
    "http_version": "1.1",
    "scheme": "http",
    "server": ("127.0.0.1", 80),
    "client": ("127.0.0.1", 1000),
    "cycle": SimpleNamespace(disconnected=False),
}
POLL_SECONDS, ANSWER_SECONDS_MAX = 60.0, 10.0


class Visitor:
    """Sends an empty request and goes on listening; `sent` is what it got."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self._has_asked = False

    async def receive(self) -> dict[str, Any]:
        if self._has_asked:
            await asyncio.Event().wait()
        self._has_asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


def wsgi_of(response: Any) -> Any:
    def wsgi(environ: dict[str, Any], start: Any) -> Any:
        start("200 OK", [("Content-Type", "text/plain")])
        return response()

    return wsgi


def test_a_poll_is_answered_once_when_the_process_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polls, "_find", lambda _: set())
    looked = []

    def look() -> HttpResponse:
        looked.append(1)
        response = HttpResponse(b"nothing new")
        response.poll = SimpleNamespace(seconds=POLL_SECONDS)  # type: ignore[attr-defined]
        return response

    async def stop_while_it_waits() -> list[Any]:
        application, visitor = WebApplication(wsgi_of(look), threads=1, folder=tmp_path), Visitor()
        answering = asyncio.create_task(application(SCOPE, visitor.receive, visitor.send))
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            while not application._polls.held:
                await asyncio.sleep(0.01)
        await application.drain()
        await asyncio.wait_for(answering, ANSWER_SECONDS_MAX)
        return visitor.sent

    sent = asyncio.run(stop_while_it_waits())
    assert [each.get("status", each.get("body")) for each in sent] == [200, b"nothing new"]
    assert len(looked) == 2


def test_a_stream_that_breaks_off_does_not_look_complete(tmp_path: Path) -> None:
    def table() -> Iterator[bytes]:
        yield b"first line\n"
        raise RuntimeError("the database went away")

    async def read() -> list[Any]:
        visitor = Visitor()
        application = WebApplication(wsgi_of(lambda: StreamingHttpResponse(table())), threads=1, folder=tmp_path)
        with pytest.raises(StreamBroken):
            await application(SCOPE, visitor.receive, visitor.send)
        return visitor.sent

    sent = asyncio.run(read())
    assert sent[-1] == {"type": "http.response.body", "body": b"first line\n", "more_body": True}
