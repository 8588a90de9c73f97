"""One try at one replica, up to the first sign of a real answer: until then nothing was sent, and another may try.

Opened means: of a stream, text, a call or a finish came (a head and "assistant" alone prove nothing: engines send them
before they compute); of an answer in one piece, all of it came and is what it should be.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from jobs.gateway.engines import sse
from jobs.gateway.engines.chunks import EngineFailed, Rewriter, decode
from jobs.gateway.engines.upstream import Answer, UpstreamError
from jobs.gateway.inference_request import InferenceRequest
from jobs.gateway.routing import capabilities
from jobs.gateway.routing.endpoint_queue import Slot

SLACK_SECONDS = 1.0
ERROR_BYTES_MAX = 64 * 1024
ANSWER_BYTES_MAX = 64 * 1024 * 1024  # in one piece; it is held until it is whole
HELD_BYTES_MAX = 256 * 1024  # of a stream before its first sign
PASSED_ON = frozenset({400, 413, 422})  # the request is wrong, according to the engine
BUSY = frozenset({429, 503})

# Made once, and without looking for circles in what was JSON: json.dumps takes half as long again.
encode = json.JSONEncoder(check_circular=False).encode


class ReplicaFailed(Exception):
    """This try came to nothing for the replica's fault; another may do it."""

    def __init__(self, why: str, *, is_busy: bool = False) -> None:
        super().__init__(why)
        self.why, self.is_busy = why, is_busy


class DeadlineOver(Exception):
    """The request's own time is up, which is nobody's fault."""


@dataclass(eq=False)
class Opened:
    """A try that began to answer; it has its slot until it is closed."""

    slot: Slot
    answer: Answer
    body: dict[str, Any]  # as the engine got it
    started_at: float
    first_at: float  # when the first sign came

    async def close(self) -> None:
        """Stop the engine where it still works, and give the slot to the next."""
        try:
            await self.answer.close()
        finally:
            self.slot.release()


@dataclass(eq=False)
class OpenedWhole(Opened):
    """An answer in one piece, which is here."""

    whole: dict[str, Any]


@dataclass(eq=False)
class OpenedStream(Opened):
    """A stream that has begun: its first event is here."""

    chunks: AsyncIterator[bytes]
    rewriter: Rewriter
    reader: sse.EventReader
    held: bytes  # for the client, up to the first sign


async def open_answer(
    request: InferenceRequest,
    slot: Slot,
    body: dict[str, Any],
    rewriter: Rewriter | None,
    *,
    seconds: float,
    clock: Callable[[], float],
) -> OpenedWhole | OpenedStream:
    """Send the request to the replica of `slot`; the slot is released where this raises.

    Raises ReplicaFailed, DeadlineOver, and ApiError for what the engine calls the caller's mistake.
    """
    started = clock()
    until = min(started + seconds, request.deadline)
    scope = asyncio.timeout(max(0.0, until - started))
    answer: Answer | None = None
    try:
        async with scope:
            if rewriter is None:
                slot.view.silent_tries.add(scope)
            data = encode(body).encode()
            headers = [(b"content-type", b"application/json"), (b"x-request-id", str(request.request_id).encode())]
            left = until - started + SLACK_SECONDS  # whose time is up, is decided here
            answer = await slot.upstream.request("POST", request.path, headers, data, seconds=left)
            if answer.status != 200:
                await _raise_for(answer)
            if rewriter is None:
                whole = await _read_whole(request, answer)
                return OpenedWhole(slot, answer, body, started, clock(), whole)
            chunks, reader = aiter(answer.chunks()), sse.EventReader()
            held = await _read_start(chunks, reader, rewriter)
            return OpenedStream(slot, answer, body, started, clock(), chunks, rewriter, reader, held)
    except BaseException as error:
        try:
            if answer is not None:
                await answer.close()
        finally:  # also where closing is cancelled
            slot.release()
        if isinstance(error, UpstreamError | sse.BadStream | EngineFailed):
            raise ReplicaFailed(str(error) or type(error).__name__) from error
        if isinstance(error, TimeoutError):
            if clock() >= request.deadline - 0.001:
                raise DeadlineOver from None
            raise ReplicaFailed(f"no answer within {clock() - started:.1f} s") from None
        raise
    finally:
        slot.view.silent_tries.discard(scope)


async def _raise_for(answer: Answer) -> None:
    body = await _read_bounded(answer, ERROR_BYTES_MAX)
    if answer.status in PASSED_ON:
        raise capabilities.from_engine(answer.status, body)
    raise ReplicaFailed(f"the engine answered {answer.status}", is_busy=answer.status in BUSY)


async def _read_start(chunks: AsyncIterator[bytes], reader: sse.EventReader, rewriter: Rewriter) -> bytes:
    """The stream up to the first sign of an answer, as the client gets it."""
    held: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        for data in reader.feed(chunk):
            held.append(rewriter.read(data))
        if rewriter.received.has_output:
            return b"".join(held)
        if size > HELD_BYTES_MAX or rewriter.received.is_done:
            break
    for data in reader.finish():
        held.append(rewriter.read(data))
    if not rewriter.received.has_output:
        raise ReplicaFailed("the stream ended before an answer began")
    return b"".join(held)


async def _read_whole(request: InferenceRequest, answer: Answer) -> dict[str, Any]:
    body = await _read_bounded(answer, ANSWER_BYTES_MAX)
    try:
        whole = decode(body.decode())
    except (ValueError, RecursionError):
        raise ReplicaFailed("the answer is not JSON") from None
    if not isinstance(whole, dict):
        raise ReplicaFailed("the answer is no JSON object")
    if whole.get("error") is not None or whole.get("object") == "error":
        raise ReplicaFailed("the engine answered 200 with an error")
    items = whole.get("data" if request.kind == "embedding" else "choices")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ReplicaFailed("the answer has nothing in it")
    expected = capabilities.choices_asked(request)
    if len(items) != expected:
        raise ReplicaFailed(f"the answer has {len(items)} parts of {expected}")
    return whole


async def _read_bounded(answer: Answer, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for chunk in answer.chunks():
        size += len(chunk)
        if size > limit:
            raise ReplicaFailed(f"an answer of more than {limit} bytes")
        pieces.append(chunk)
    return b"".join(pieces)
