"""The entry point of the sync process: `uvicorn jobs.sync.app:application`. Raw ASGI: it holds thousands of requests.

POST /api/agent/v1/sync     one beat of one node
GET  /healthz               this process answers
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "marketplace.config.settings")
django.setup()

from django.conf import settings  # noqa: E402
from django.db import DatabaseError  # noqa: E402
from pydantic import ValidationError  # noqa: E402

from jobs.errors import BodyTooLarge  # noqa: E402
from jobs.sync.server import Call, SyncServer  # noqa: E402
from marketplace.foundation.errors import BadRequest, NotFound, SoukError, StateConflict  # noqa: E402
from provider_agent.protocol import SYNC_BODY_BYTES_MAX  # noqa: E402

SYNC_PATH = "/api/agent/v1/sync"
READ_SECONDS_MAX = 10.0
THREADS_DEFAULT = 8
ERRORS_SHOWN_MAX = 20
GARBAGE_THRESHOLDS = (20_000, 50, 1_000)  # objects; young and old generations, each in turns of the one before
OPTIONAL = ("check", "link", "update", "gateways")

log = logging.getLogger(__name__)
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Application:
    """One server, made when the process' event loop starts."""

    def __init__(self) -> None:
        self._server: SyncServer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            status, body = await self._answer(scope, receive)
            await _send(send, status, body)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                _look_for_garbage_less_often()
                self._server = SyncServer(redis_url=settings.REDIS_URL, threads_max=_threads_max())
                await self._server.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                if self._server is not None:
                    await self._server.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        try:
            return 200, await self._route(scope, receive)
        except asyncio.CancelledError:
            # The process is stopping and ends its held requests: the agent sends again, and reaches the next process.
            return _error(503, "restarting", "The marketplace restarts. Ask again.")
        except Exception as error:
            return _describe(error)

    async def _route(self, scope: Scope, receive: Receive) -> bytes:
        server = self._server
        if server is None:
            raise RuntimeError("the process was started without lifespan events; run it with --lifespan on")
        place = (scope["method"], scope["path"])
        if place == ("GET", "/healthz"):
            return json.dumps(server.state()).encode()
        if place != ("POST", SYNC_PATH):
            raise NotFound(f"There is nothing at {scope['method']} {scope['path']}.")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        query = scope["query_string"].decode("latin-1")
        path_and_query = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        body = await _read_body(receive, headers.get("content-length", ""))
        response = await server.sync(Call("POST", path_and_query, headers, body))
        # An agent that does not know a field would refuse the answer with it.
        absent = {name for name in OPTIONAL if getattr(response, name) is None}
        return response.model_dump_json(exclude=absent).encode()


def _look_for_garbage_less_often() -> None:
    """What is remembered of thousands of nodes is never garbage, and going through it holds everybody up."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


async def _read_body(receive: Receive, announced: str) -> bytes:
    if announced.isdigit() and int(announced) > SYNC_BODY_BYTES_MAX:
        raise BodyTooLarge(bytes_max=SYNC_BODY_BYTES_MAX)
    body = bytearray()
    try:
        async with asyncio.timeout(READ_SECONDS_MAX):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > SYNC_BODY_BYTES_MAX:
                    raise BodyTooLarge(bytes_max=SYNC_BODY_BYTES_MAX)
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return bytes(body)
    except TimeoutError as error:
        raise BadRequest("The body did not arrive in time.") from error


def _threads_max() -> int:
    """As many threads as connections: one more would only wait for a connection."""
    pool = settings.DATABASES["default"].get("OPTIONS", {}).get("pool")
    return int(pool["max_size"]) if isinstance(pool, dict) else THREADS_DEFAULT


def _describe(error: Exception) -> tuple[int, bytes]:
    """The answer to an error; one that nobody foresaw is logged with its traceback."""
    if isinstance(error, StateConflict):
        return _error(503, "busy", f"Another process was faster: {error.message}")
    if isinstance(error, SoukError):
        return _error(error.status, error.code, error.message, error.details)
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        shown = [{"at": ".".join(map(str, e["loc"])), "message": e["msg"]} for e in found[:ERRORS_SHOWN_MAX]]
        return _error(400, "invalid_request", "The message does not fit the protocol.", {"errors": shown})
    log.error("A sync failed", exc_info=error)
    if isinstance(error, DatabaseError):
        return _error(503, "unavailable", "The marketplace's database does not answer. Try again.")
    return _error(500, "internal_error", "Something broke on our side. It was logged; try again.")


def _error(status: int, code: str, message: str, details: dict[str, Any] | None = None) -> tuple[int, bytes]:
    return status, json.dumps({"code": code, "message": message, "details": details or {}}).encode()


async def _send(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


application = Application()
