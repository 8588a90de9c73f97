"""What our own engines share: their socket, their end, their counters and the form of their errors."""

from __future__ import annotations

import asyncio
import ctypes
import json
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtimes.serve.engines.base import ENGINE_SOCKET, Counters

PR_SET_PDEATHSIG = 1  # Linux, prctl(2)
BACKLOG = 1024
REST_BYTES_MAX, REST_SECONDS_MAX = 64 << 20, 10.0  # of a request that was refused before it was read
DRAIN_SECONDS_MAX = 5  # the listener has drained before it stops an engine
OUT_OF_MEMORY_MARKS = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")


class Refused(Exception):
    """A request that cannot be answered as it is; reported in OpenAI's form."""

    def __init__(
        self, message: str, *, status: int = 400, code: str = "invalid_value", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.code, self.param = message, status, code, param

    def as_dict(self) -> dict[str, Any]:
        """The body of the answer."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


@dataclass
class Counts:
    """What an engine did since it started; only ever written in its event loop."""

    input_tokens: int = 0
    output_tokens: int = 0
    read_waiting: Callable[[], int] = lambda: 0  # requests that nothing is computed for yet

    def as_text(self) -> str:
        """In the text format of Prometheus, under the names of `Counters`."""
        names = Counters()
        pairs = ((names.input_tokens, self.input_tokens), (names.output_tokens, self.output_tokens))
        lines = [f"# TYPE {name} counter\n{name} {value}\n" for name, value in pairs]
        return "".join(lines) + f"# TYPE {names.queued} gauge\n{names.queued} {self.read_waiting()}\n"


def die_with_parent() -> None:
    """Have the kernel end this engine when the process that started it has ended."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def listen() -> socket.socket:
    """The engine's socket in the working directory; the name is short wherever that directory lies."""
    Path(ENGINE_SOCKET).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(ENGINE_SOCKET)
    listener.listen(BACKLOG)
    return listener


async def read_rest(request: Any) -> None:
    """Drop what the caller still sends, within bounds: closed on it, the connection would lose the answer too."""
    left = REST_BYTES_MAX
    try:
        async with asyncio.timeout(REST_SECONDS_MAX):
            async for chunk in request.stream():
                left -= len(chunk)
                if left < 0:
                    return
    except (RuntimeError, TimeoutError, OSError):
        return  # it was read already, or does not come


def add_own_routes(app: Any, counts: Counts, facts: dict[str, Any], model_name: str) -> None:
    """/health, /metrics, /facts and /v1/models, and OpenAI's form for what goes wrong."""
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse, PlainTextResponse
    from starlette.exceptions import HTTPException

    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(counts.as_text())

    async def facts_page() -> dict[str, Any]:
        return facts

    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": model_name, "object": "model", "created": 0, "owned_by": "souk"}]}

    async def refuse(request: Any, error: Exception) -> JSONResponse:
        await read_rest(request)
        refused = as_refused(error)
        return JSONResponse(refused.as_dict(), status_code=refused.status)

    for path, answer in (("/metrics", metrics), ("/facts", facts_page), ("/v1/models", models)):
        app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", "") != path]
        app.add_api_route(path, answer, methods=["GET"], response_model=None)
    for kind in (Refused, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, refuse)


async def read_json(request: Any, bytes_max: int) -> dict[str, Any]:
    """The JSON object that a request's body is; raises Refused."""
    raw = await request.body()
    if len(raw) > bytes_max:
        raise Refused("The body is too large.", status=413, code="body_too_large")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Refused("The body is not JSON.", code="invalid_json") from error
    if not isinstance(body, dict):
        raise Refused("The body is not a JSON object.", code="invalid_json")
    return body


def as_refused(error: Exception) -> Refused:
    """The error as the caller gets it; an unforeseen one shows no internals."""
    if isinstance(error, Refused):
        return error
    status, detail = getattr(error, "status_code", 0), getattr(error, "detail", None)
    if status:
        return Refused(str(detail), status=status, code="invalid_request" if status < 500 else "engine_error")
    if type(error).__name__ == "RequestValidationError":
        return Refused("the body is not a JSON object of the expected form", code="invalid_json")
    return Refused("the engine failed at this request", status=500, code="engine_error")


def serve_app(app: Any) -> None:
    """Answer on the engine's socket until SIGTERM."""
    import uvicorn

    listener = listen()
    config = uvicorn.Config(
        app,
        fd=listener.fileno(),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=DRAIN_SECONDS_MAX,
        timeout_keep_alive=5,
    )
    uvicorn.Server(config).run(sockets=[listener])
