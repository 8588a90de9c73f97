"""The sync process' entry point, message by message: what is no request, what comes late, and how errors are shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest
from django.conf import settings
from django.db import DatabaseError
from pydantic import BaseModel, ValidationError

from jobs.errors import BodyTooLarge
from jobs.sync import app
from jobs.sync.app import SYNC_PATH, Application
from marketplace.foundation.errors import BadRequest, NotFound, StateConflict
from provider_agent.protocol import SYNC_BODY_BYTES_MAX

Message = MutableMapping[str, Any]


class Given:
    """Messages of the HTTP server, in order; after the last one it waits for ever."""

    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)

    async def __call__(self) -> Message:
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)


def body(data: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": data, "more_body": more}


def ask(scope: Message, *messages: Message) -> list[Message]:
    """One scope, served to its end; what was sent."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(asyncio.wait_for(Application()(scope, Given(*messages), send), 5))
    return sent


def read(*messages: Message, announced: str = "") -> bytes:
    return asyncio.run(app._read_body(Given(*messages), announced))


def test_a_process_without_a_lifespan_answers_that_it_broke() -> None:
    scope = {"type": "http", "method": "POST", "path": SYNC_PATH, "headers": [], "query_string": b"", "raw_path": b"/"}
    start, answer = ask(scope, body(b"{}"))
    assert start["status"] == 500
    assert json.loads(answer["body"])["code"] == "internal_error"


def test_a_websocket_is_not_answered() -> None:
    assert ask({"type": "websocket", "path": SYNC_PATH}) == []


def test_a_process_that_never_started_stops_cleanly() -> None:
    sent = ask({"type": "lifespan"}, {"type": "lifespan.unknown"}, {"type": "lifespan.shutdown"})
    assert sent == [{"type": "lifespan.shutdown.complete"}]


def test_a_body_in_pieces_is_joined() -> None:
    assert read(body(b"ab", more=True), body(b"cd")) == b"abcd"
    assert read(body(b"ab", more=True), {"type": "http.disconnect"}) == b"ab"


def test_a_body_is_too_large_by_its_announcement_or_by_its_bytes() -> None:
    with pytest.raises(BodyTooLarge):
        read(announced=str(SYNC_BODY_BYTES_MAX + 1))
    half = body(bytes(SYNC_BODY_BYTES_MAX // 2 + 1), more=True)
    with pytest.raises(BodyTooLarge):
        read(half, half, announced="not a number")


def test_a_body_that_does_not_arrive_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "READ_SECONDS_MAX", 0.01)
    with pytest.raises(BadRequest, match="did not arrive in time"):
        read(body(b"ab", more=True))


class Number(BaseModel):
    number: int


def invalid() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Number.model_validate({"number": "secret"})
    return caught.value


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StateConflict("somebody was faster"), 503, "busy"),
        (NotFound("There is nothing."), 404, "not_found"),
        (DatabaseError("connection to 10.0.0.1 refused"), 503, "unavailable"),
        (RuntimeError("10.0.0.1"), 500, "internal_error"),
    ],
)
def test_an_agent_sees_a_code_and_nothing_of_our_insides(error: Exception, status: int, code: str) -> None:
    answered, text = app._describe(error)
    assert (answered, json.loads(text)["code"]) == (status, code)
    assert b"10.0.0.1" not in text


def test_a_message_that_does_not_fit_names_the_field_and_not_its_value() -> None:
    status, text = app._describe(invalid())
    assert status == 400
    assert json.loads(text)["details"]["errors"][0]["at"] == "number"
    assert b"secret" not in text


def test_a_process_that_is_stopped_asks_agents_to_come_again() -> None:
    class Stopping(Application):
        async def _route(self, scope: Message, receive: Any) -> bytes:
            raise asyncio.CancelledError

    status, text = asyncio.run(Stopping()._answer({}, Given()))
    assert (status, json.loads(text)["code"]) == (503, "restarting")


@pytest.mark.parametrize(("options", "threads"), [({"pool": {"max_size": 3}}, 3), ({}, app.THREADS_DEFAULT)])
def test_there_are_as_many_threads_as_connections(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], threads: int
) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "OPTIONS", options)
    assert app._threads_max() == threads
