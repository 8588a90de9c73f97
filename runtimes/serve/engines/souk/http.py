"""The engine's HTTP: OpenAI's chat and completions, a check of another replica's answer, health, facts, metrics.

When a caller disconnects, generation for it stops at the next token.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from runtimes.serve.engines.souk.answers import Answering
from runtimes.serve.engines.souk.batch import Batch, Piece, Sequence
from runtimes.serve.engines.souk.check import as_json, check_claim, read_claims
from runtimes.serve.engines.souk.errors import BadRequest
from runtimes.serve.engines.souk.model import Model
from runtimes.serve.engines.souk.request import InferenceRequest, Kind, Limits, read_request
from runtimes.serve.engines.souk.text import Texts

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
KINDS: Final[dict[str, Kind]] = {"/v1/chat/completions": "chat", "/v1/completions": "completion"}

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Pieces = asyncio.Queue[tuple[int, Piece]]


class EngineApp:
    """The ASGI application."""

    def __init__(
        self, model: Model, texts: Texts, batch: Batch, *, served_as: str, max_tokens: int | None = None
    ) -> None:
        self._model, self._texts, self._batch, self._served_as = model, texts, batch, served_as
        self._limits = Limits(model.context, max_tokens or model.context)
        self._requests = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        method, path = scope["method"], scope["path"]
        try:
            if method == "POST" and path in KINDS:
                await self._answer(KINDS[path], await _read_body(receive), receive, send)
            elif method == "POST" and path == "/souk/v1/check":
                await _send_json(send, 200, await self._check(await _read_body(receive)))
            elif method == "GET" and path in self._pages:
                await self._pages[path](send)
            else:
                await _send_json(send, 404, BadRequest(f"there is no {method} {path}").body())
        except BadRequest as error:
            await _send_json(send, error.status, error.body())
        except _Gone:
            return

    @property
    def _pages(self) -> dict[str, Callable[[Send], Awaitable[None]]]:
        return {
            "/health": self._show_health,
            "/facts": self._show_facts,
            "/metrics": self._show_metrics,
            "/v1/models": self._show_models,
        }

    # --- writing

    async def _answer(self, kind: Kind, body: Any, receive: Receive, send: Send) -> None:
        request = await asyncio.to_thread(read_request, kind, body, self._texts, self._limits)
        if request.model and request.model != self._served_as:
            raise BadRequest(f"the model {request.model!r} is not served here", param="model", code="model_not_found")
        answering = Answering(request, self._texts, self._served_as)
        pieces: Pieces = asyncio.Queue()  # bounded by the answer's tokens
        sequences = _sequences(request, pieces)
        self._batch.submit(sequences)
        self._requests += 1
        gone = asyncio.ensure_future(_until_gone(receive))
        writing = asyncio.ensure_future(self._write(request, answering, pieces, send))
        try:
            await asyncio.wait({gone, writing}, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()
        finally:
            for sequence in sequences:
                sequence.cancel()
            for each in (gone, writing):
                each.cancel()
            await asyncio.gather(gone, writing, return_exceptions=True)

    async def _write(self, request: InferenceRequest, answering: Answering, pieces: Pieces, send: Send) -> None:
        if not request.is_stream:
            while not answering.is_complete:
                answering.add(*await pieces.get())
            has_failed = any(choice.ending == "failed" for choice in answering.choices)
            await _send_json(send, 500, _FAILED) if has_failed else await _send_json(send, 200, answering.whole())
            return
        await send({"type": "http.response.start", "status": 200, "headers": _headers(b"text/event-stream")})
        for event in answering.first_events():
            await _send_chunk(send, event)
        while not answering.is_complete:
            index, piece = await pieces.get()
            answering.add(index, piece)
            if piece.ending == "failed":
                await _send_chunk(send, b"data: " + json.dumps(_FAILED).encode() + b"\n\n", is_last=True)
                return
            await _send_chunk(send, answering.event(index, piece))
        for event in answering.last_events():
            await _send_chunk(send, event)
        await _send_chunk(send, b"", is_last=True)

    # --- checking

    async def _check(self, body: Any) -> dict[str, Any]:
        raw = body.get("request") if isinstance(body, dict) else None
        kind: Any = body.get("kind") if isinstance(body, dict) else None
        if kind not in KINDS.values():
            raise BadRequest("kind must be chat or completion", param="kind")
        request = await asyncio.to_thread(read_request, kind, raw, self._texts, self._limits)
        if not isinstance(raw, dict) or (request.sampling.temperature > 0 and raw.get("seed") is None):
            raise BadRequest("an answer that was drawn without a known seed cannot be drawn again", param="request")
        claims = read_claims(body, request)
        checked = []
        for claim in claims:
            future = self._batch.between_steps(
                lambda claim=claim: check_claim(claim, request, self._model, self._texts)  # type: ignore[misc]
            )
            checked.append(await asyncio.wrap_future(future))
        return as_json(checked, self._model.digest)

    # --- pages

    async def _show_health(self, send: Send) -> None:
        is_alive = self._batch.is_alive
        await _send_json(send, 200 if is_alive else 503, {"status": "ok" if is_alive else "dead"})

    async def _show_facts(self, send: Send) -> None:
        facts = {
            "context": self._model.context,
            "vocabulary": self._model.vocabulary,
            "dtype": self._model.dtype,
            "slots": self._model.slots,
        }
        await _send_json(send, 200, facts)

    async def _show_models(self, send: Send) -> None:
        model = {"id": self._served_as, "object": "model", "created": 0, "owned_by": "souk"}
        await _send_json(send, 200, {"object": "list", "data": [model]})

    async def _show_metrics(self, send: Send) -> None:
        values = {
            "souk_requests_total": self._requests,
            "souk_input_tokens_total": self._batch.input_tokens,
            "souk_output_tokens_total": self._batch.output_tokens,
            "souk_requests_waiting": self._batch.queued,
        }
        body = "".join(f"{name} {value}\n" for name, value in values.items()).encode()
        await _send_whole(send, 200, body, b"text/plain; version=0.0.4")


class _Gone(Exception):
    """The caller hung up while it spoke."""


_FAILED: Final = {
    "error": {"message": "the engine failed", "type": "server_error", "param": None, "code": "engine_failed"}
}


def _sequences(request: InferenceRequest, pieces: Pieces) -> list[Sequence]:
    loop = asyncio.get_running_loop()

    def deliverer(index: int) -> Callable[[Piece], None]:
        def deliver(piece: Piece) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(pieces.put_nowait, (index, piece))

        return deliver

    return [
        Sequence(
            prompt=request.prompts[index // request.choices],
            sampling=request.sampling,
            choice=index % request.choices,
            max_tokens=request.max_tokens,
            stops=request.stops,
            deliver=deliverer(index),
            logprobs=request.logprobs,
            commits=request.commits,
            ignores_end=request.ignores_end,
        )
        for index in range(len(request.prompts) * request.choices)
    ]


async def _read_body(receive: Receive) -> Any:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise BadRequest(f"the body is larger than {BODY_BYTES_MAX} bytes")
        if not message.get("more_body"):
            break
    try:
        return json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise BadRequest("the body is not JSON") from error


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _headers(content_type: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", content_type), (b"cache-control", b"no-store")]


async def _send_chunk(send: Send, chunk: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": not is_last})


async def _send_json(send: Send, status: int, body: Any) -> None:
    await _send_whole(send, status, json.dumps(body, separators=(",", ":")).encode(), b"application/json")


async def _send_whole(send: Send, status: int, body: bytes, content_type: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*_headers(content_type), length]})
    await _send_chunk(send, body, is_last=True)
