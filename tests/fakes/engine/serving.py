"""The engine: chat, completions, embeddings and models, with counts of requests and faults on demand.

`GET /fake/stats` returns the counts, `GET /fake/requests` the newest bodies, `POST /fake/faults` adds a fault (see
faults.py; `DELETE` takes them all back), `POST /fake/pace` sets the times.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from runtimes.contract import Capability
from tests.fakes.engine import asks, shapes, tokens
from tests.fakes.engine.asks import Ask, BadAsk, Choice, Model
from tests.fakes.engine.faults import Fault, Faults, from_json
from tests.fakes.engine.http import Connection, Request, head

REQUESTS_KEPT = 200
ENDLESS_BYTES_MAX = 64 * 1024 * 1024  # that an endless head or body sends, in case nobody hangs up
FOREVER_SECONDS = 3600
PIECE = b"x" * 8192


@dataclass(frozen=True)
class Pace:
    """How fast it answers."""

    first_token_ms: float = 0
    token_ms: float = 0


@dataclass
class Stats:
    """The requests so far."""

    requests: int = 0
    streams: int = 0
    completed: int = 0
    cancelled: int = 0  # the caller hung up before the end
    refused: int = 0
    in_flight: int = 0
    in_flight_max: int = 0
    tokens_out: int = 0
    connections: int = 0


class Engine:
    """What answers; `connection` is the protocol of each connection."""

    def __init__(self, model: Model, pace: Pace) -> None:
        self.model, self.pace = model, pace
        self.stats, self.faults = Stats(), Faults()
        self.requests: deque[dict[str, Any]] = deque(maxlen=REQUESTS_KEPT)
        self.alive: set[Connection] = set()
        self.port = 0
        self._routes: dict[tuple[str, str], Callable[[Request, Connection], Awaitable[None]]] = {
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/completions"): self._completion,
            ("POST", "/v1/embeddings"): self._embeddings,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/fake/stats"): self._send_stats,
            ("GET", "/fake/requests"): self._send_requests,
            ("POST", "/fake/faults"): self._add_fault,
            ("DELETE", "/fake/faults"): self._clear_faults,
            ("POST", "/fake/pace"): self._set_pace,
        }

    def connection(self) -> Connection:
        """A new caller."""
        self.stats.connections += 1
        return Connection(self._answer, self.alive)

    async def _answer(self, request: Request, to: Connection) -> None:
        route = self._routes.get((request.method, request.path))
        if route is None:
            await to.whole(404, shapes.dump(shapes.error(f"no {request.method} {request.path} here")))
        elif request.method == "GET" or request.path.startswith("/fake/"):
            await route(request, to)
        else:
            await self._counted(route, request, to)

    async def _counted(self, route: Any, request: Request, to: Connection) -> None:
        stats = self.stats
        stats.requests += 1
        stats.in_flight += 1
        stats.in_flight_max = max(stats.in_flight_max, stats.in_flight)
        try:
            await route(request, to)
            if to.transport.is_closing():
                stats.cancelled += 1
            else:
                stats.completed += 1
        except BadAsk as error:
            stats.refused += 1
            await to.whole(error.status, shapes.dump(shapes.error(error.message, code=error.code, param=error.param)))
        except asyncio.CancelledError:
            stats.cancelled += 1
            raise
        finally:
            stats.in_flight -= 1

    def _body(self, request: Request) -> Any:
        try:
            body = json.loads(request.body)
        except ValueError:
            raise BadAsk("the body is no JSON") from None
        self.requests.append({"path": request.path, "headers": request.headers, "body": body})
        return body

    # -- generations

    async def _chat(self, request: Request, to: Connection) -> None:
        await self._generate("chat", request, to)

    async def _completion(self, request: Request, to: Connection) -> None:
        await self._generate("completion", request, to)

    async def _generate(self, kind: str, request: Request, to: Connection) -> None:
        body = self._body(request)
        fault = self.faults.take(request.path)
        if fault is not None and await _broken_head(fault, to):
            return
        if fault is not None and fault.kind == "other_text" and isinstance(body, dict):
            body = {**body, "temperature": 1.0, "seed": 666}
        ask = asks.read(kind, body, self.model)
        await self._rest(self.pace.first_token_ms)
        if ask.is_stream:
            self.stats.streams += 1
            await self._stream(ask, to, fault)
            return
        sent = sum(choice.count for choice in ask.choices)
        await self._rest(self.pace.token_ms * sent)
        if fault is not None and fault.kind in ("die", "cut", "hang", "end"):
            await _break_off(fault, to)
            return
        self.stats.tokens_out += sent
        answer = shapes.whole(ask, self.stats.requests, self.model.name, _counts(ask, sent, fault))
        await to.whole(200, shapes.dump(answer))

    async def _stream(self, ask: Ask, to: Connection, fault: Fault | None) -> None:
        """A chunk for each token, the choices in turn."""
        chunks = shapes.Chunks(ask, self.stats.requests, self.model.name)
        left = fault.tokens if fault is not None and fault.kind in _IN_STREAM else None
        await to.begin()
        for choice in ask.choices:
            if (first := chunks.first(choice)) and left != 0:
                await to.chunk(first)
        for data, is_token in _chunks_of(chunks, ask.choices):
            if left == 0:
                assert fault is not None
                await _break_off(fault, to)
                return
            await to.chunk(data)
            if is_token:
                self.stats.tokens_out += 1
                left = left - 1 if left is not None else None
                await self._rest(self.pace.token_ms)
        if left is not None and fault is not None:
            await _break_off(fault, to)
            return
        counts = _counts(ask, sum(choice.count for choice in ask.choices), fault)
        if ask.with_usage and counts is not None:
            await to.chunk(chunks.usage(counts))
        await to.chunk(shapes.DONE)
        await to.end()

    async def _rest(self, ms: float) -> None:
        await asyncio.sleep(ms / 1000)

    # -- the rest of OpenAI's interface

    async def _embeddings(self, request: Request, to: Connection) -> None:
        body = self._body(request)
        fault = self.faults.take(request.path)
        if fault is not None and await _broken_head(fault, to):
            return
        if Capability.EMBEDDINGS not in self.model.capabilities:
            raise BadAsk("this model has no embeddings", status=404)
        given = body.get("input") if isinstance(body, dict) else None
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise BadAsk("input must be a string or a list of strings", param="input")
        await self._rest(self.pace.first_token_ms)
        vectors = [tokens.vector(text, body.get("dimensions") or self.model.dimensions) for text in texts]
        is_packed = body.get("encoding_format") == "base64"
        data = [
            {"object": "embedding", "index": index, "embedding": tokens.packed(numbers) if is_packed else numbers}
            for index, numbers in enumerate(vectors)
        ]
        read = sum(tokens.count(text) for text in texts)
        counts = {"prompt_tokens": read, "total_tokens": read}
        answer = {"object": "list", "data": data, "model": self.model.name, "usage": counts}
        await to.whole(200, shapes.dump(answer))

    async def _models(self, request: Request, to: Connection) -> None:
        entry = {"id": self.model.name, "object": "model", "created": 0, "owned_by": "fake"}
        await to.whole(200, shapes.dump({"object": "list", "data": [entry]}))

    async def _health(self, request: Request, to: Connection) -> None:
        await to.whole(200, b"{}")

    # -- the test's side

    async def _send_stats(self, request: Request, to: Connection) -> None:
        stats = asdict(self.stats) | {"open": len(self.alive), "faults": self.faults.taken, "pid": os.getpid()}
        await to.whole(200, shapes.dump(stats))

    async def _send_requests(self, request: Request, to: Connection) -> None:
        await to.whole(200, shapes.dump(list(self.requests)))

    async def _add_fault(self, request: Request, to: Connection) -> None:
        try:
            self.faults.add(from_json(json.loads(request.body)))
        except (TypeError, ValueError) as error:
            await to.whole(400, shapes.dump(shapes.error(str(error))))
            return
        await to.whole(200, b"{}")

    async def _clear_faults(self, request: Request, to: Connection) -> None:
        self.faults.clear()
        await to.whole(200, b"{}")

    async def _set_pace(self, request: Request, to: Connection) -> None:
        self.pace = replace(self.pace, **json.loads(request.body))
        await to.whole(200, b"{}")


_IN_STREAM = ("die", "cut", "end", "hang", "error", "garbage")


def _chunks_of(chunks: shapes.Chunks, choices: list[Choice]) -> list[tuple[bytes, bool]]:
    """Every chunk after the heads, and whether it is a token's."""
    parts: list[tuple[bytes, bool]] = []
    for at in range(max((len(choice.tokens) for choice in choices), default=0)):
        parts += [(chunks.token(choice, choice.tokens[at]), True) for choice in choices if at < len(choice.tokens)]
    for choice in choices:
        if choice.tool is not None:
            parts += [(part, True) for part in chunks.tool(choice)]
        parts.append((chunks.last(choice), False))
    return parts


def _counts(ask: Ask, sent: int, fault: Fault | None) -> dict[str, Any] | None:
    if fault is not None and fault.kind == "no_usage":
        return None
    return shapes.usage(ask, sent, fault.factor if fault is not None and fault.kind == "usage" else 1)


async def _broken_head(fault: Fault, to: Connection) -> bool:
    """A fault that comes before any token; False: the answer goes on."""
    if fault.kind == "slow":
        await asyncio.sleep(fault.ms / 1000)
        return False
    if fault.kind == "status":
        await asyncio.sleep(fault.ms / 1000)
        await to.whole(fault.status, shapes.dump(shapes.error("configured to fail", type="server_error")))
    elif fault.kind == "page":
        await to.whole(fault.status, b"<html><body>Bad Gateway at 10.0.0.7</body></html>", b"text/html")
    elif fault.kind == "silent":
        await asyncio.sleep(FOREVER_SECONDS)
    elif fault.kind == "endless_headers":
        await to.send(b"HTTP/1.1 200 OK\r\n")
        for at in range(ENDLESS_BYTES_MAX // len(PIECE)):
            await to.send(b"x-%d: %b\r\n" % (at, PIECE))
        to.transport.abort()
    elif fault.kind == "endless_body":
        await to.send(head(200, b"application/json", b"transfer-encoding: chunked\r\n"))
        for _ in range(ENDLESS_BYTES_MAX // len(PIECE)):
            await to.chunk(PIECE)
        to.transport.abort()
    elif fault.kind == "no_http":
        await to.send(b"SSH-2.0-OpenSSH_9.2\r\n")
        to.transport.close()
    elif fault.kind == "empty":
        await to.whole(200, b"")
    else:
        return False
    return True


async def _break_off(fault: Fault, to: Connection) -> None:
    """A fault that comes between two tokens."""
    if fault.kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.kind == "cut":
        to.transport.abort()
    elif fault.kind == "hang":
        await asyncio.sleep(FOREVER_SECONDS)
    elif fault.kind == "error":
        await to.chunk(shapes.event(shapes.error("CUDA error: device-side assert", type="server_error")))
        await to.end()
    elif fault.kind == "garbage":
        await to.chunk(b"data: {not json\n\nevent\x00: \xff\xfe\n\n")
        await to.end()
    else:
        await to.end()
