"""A stream that has begun is passed on to its end, over more than one replica if need be: never silently cut.

It ends with a finish reason and [DONE], or with an error event and without [DONE].
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jobs.gateway.answering.disconnects import RequestWatchdog
from jobs.gateway.answering.opening import DeadlineOver, OpenedStream, ReplicaFailed
from jobs.gateway.engines import sse
from jobs.gateway.engines.chunks import EngineFailed
from jobs.gateway.engines.upstream import UpstreamError
from jobs.gateway.inference_request import Client, InferenceRequest
from jobs.gateway.routing.capabilities import choices_asked

TOKEN_SECONDS_MAX = 60.0  # between two pieces of a stream
TAIL_SECONDS_MAX = 5.0  # for what an engine sends after the finish: its count, [DONE]
UNSEEN_CHUNKS = 64  # more than max_tokens that a stream may have, before the engine is stopped


async def pass_on(
    request: InferenceRequest,
    opened: OpenedStream,
    client: Client,
    watchdog: RequestWatchdog,
    *,
    tokens_max: int,
    token_seconds: float,
    clock: Callable[[], float],
) -> None:
    """Send the client what comes, until it is whole. Raises ReplicaFailed, DeadlineOver and ClientGone."""
    rewriter, chunks = opened.rewriter, opened.chunks
    received, view, choices, out = rewriter.received, opened.slot.view, choices_asked(request), opened.held
    opened.held = b""
    while True:
        if out:
            await client.send(out)
        if received.is_done:
            return
        if received.chunks > tokens_max + UNSEEN_CHUNKS:
            raise ReplicaFailed(f"the engine wrote on beyond {tokens_max} tokens")
        is_whole, now = len(received.finished) >= choices, clock()
        view.note_alive(now)
        watchdog.arm(min(now + (TAIL_SECONDS_MAX if is_whole else token_seconds), request.deadline))
        try:
            chunk = await anext(chunks)
        except StopAsyncIteration:
            await _end(opened, client, choices)
            return
        except asyncio.CancelledError:
            if not watchdog.absorb_timeout():
                raise
            if is_whole:
                return
            if clock() >= request.deadline - 0.001:
                raise DeadlineOver from None
            raise ReplicaFailed(f"nothing came for {token_seconds:.1f} s") from None
        except UpstreamError as error:
            if is_whole:
                return
            raise ReplicaFailed(str(error)) from error
        finally:
            watchdog.disarm()
        out = await _rewrite(opened, chunk, client)


async def _rewrite(opened: OpenedStream, chunk: bytes, client: Client) -> bytes:
    """What the client gets for `chunk`; what came before an engine's mistake in it is sent before that is raised."""
    parts: list[bytes] = []
    try:
        for data in opened.reader.feed(chunk):
            parts.append(opened.rewriter.read(data))
    except (sse.BadStream, EngineFailed) as error:
        if parts:
            await client.send(b"".join(parts))
        raise ReplicaFailed(str(error) or "the engine failed") from error
    return b"".join(parts) if len(parts) != 1 else parts[0]


async def _end(opened: OpenedStream, client: Client, choices: int) -> None:
    """The engine closed the stream: fine only where it had finished."""
    rewriter = opened.rewriter
    try:
        out = b"".join(rewriter.read(data) for data in opened.reader.finish())
    except (sse.BadStream, EngineFailed) as error:
        raise ReplicaFailed(str(error) or "the engine failed") from error
    if out:
        await client.send(out)
    if len(rewriter.received.finished) < choices and not rewriter.received.is_done:
        raise ReplicaFailed("the stream ended in the middle")
