"""An answer that has begun reaches the client whole, or ends with an error: in one piece, or as a stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jobs.gateway.accounting.claims import Answered
from jobs.gateway.answering import continuing, streaming
from jobs.gateway.answering.opening import (
    DeadlineOver,
    Opened,
    OpenedStream,
    OpenedWhole,
    ReplicaFailed,
    encode,
)
from jobs.gateway.answering.trying import Trying
from jobs.gateway.answering.work import Work
from jobs.gateway.engines import sse, tokens
from jobs.gateway.errors import ApiError

WHOLE_HEADERS = [(b"content-type", b"application/json")]
STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


class Relay:
    """Sends clients what their replicas answer."""

    def __init__(
        self, trying: Trying, clock: Callable[[], float], on_answered: Callable[[Answered], None] | None
    ) -> None:
        self._trying, self._clock, self._on_answered = trying, clock, on_answered

    async def send_whole(self, work: Work, opened: OpenedWhole) -> None:
        """An answer in one piece, which is here."""
        request, whole, now = work.request, opened.whole, self._clock()
        commitment = whole.pop("souk_commitment", None)
        count = tokens.count_whole(request, work.size, whole, work.queue.ratio, max_tokens=work.tokens_max)
        whole["model"] = request.body["model"]
        if request.kind != "embedding":
            whole["id"], whole["created"] = work.answer_id, work.created
        if count.by != "engine":
            whole["usage"] = tokens.usage_object(request, count)
        data = encode(whole).encode()
        opened.slot.view.note_served(now, now - opened.started_at, count)
        await opened.close()
        work.meter_part("ok", count)
        await work.client.answer(200, WHOLE_HEADERS, data)
        if request.endpoint.verify_share > 0:
            self._report_answered(work, opened, _first_text(whole), whole, commitment)

    async def send_stream(self, work: Work, opened: OpenedStream) -> None:
        """A stream, from what is held of it to its end."""
        await work.client.start(200, STREAM_HEADERS)
        error: ApiError | None = None
        try:
            part: OpenedStream | None = opened
            while part is not None:
                part = await self._send_part(work, part)
        except DeadlineOver:
            error = ApiError(504, "timeout", "the request's time was up", type="server_error")
            work.meter_broken("timeout")
        except ReplicaFailed:
            message = "the replica was lost in the middle of the answer, and no other could go on with it"
            error = ApiError(502, "replica_lost", message, type="server_error")
        if error is not None:
            work.queue.failed += 1
            await work.client.send(sse.write_event(error.body()))
        else:
            await work.client.send(self._last_words(work))
        await work.client.end()

    async def _send_part(self, work: Work, opened: OpenedStream) -> OpenedStream | None:
        """One replica's part; where it is lost, the next replica's opened part. Raises ReplicaFailed, DeadlineOver."""
        try:
            await streaming.pass_on(
                work.request,
                opened,
                work.client,
                work.watchdog,
                tokens_max=work.tokens_max - work.output,
                token_seconds=self._trying.patience.token,
                clock=self._clock,
            )
        except ReplicaFailed as failure:
            await self._lose_part(work, opened, failure)
            return await self._move(work, failure)
        rewriter, now = opened.rewriter, self._clock()
        count = work.count_opened()
        opened.slot.view.note_served(now, now - opened.started_at, count, stream_seconds=now - opened.first_at)
        work.meter_part("ok", count)
        if work.parts == 1:
            self._report_answered(work, opened, "".join(rewriter.sent or ()), None, rewriter.received.commitment)
        await opened.close()
        work.opened = None
        return None

    async def _lose_part(self, work: Work, opened: OpenedStream, failure: ReplicaFailed) -> None:
        rewriter = opened.rewriter
        self._trying.note_failed(work, opened.slot, failure)
        count = work.count_opened()
        opened.slot.view.note_tokens(count)
        work.meter_part("replica_lost", count)
        if rewriter.sent is None:
            work.is_movable = False  # more than text came, or more text than is kept
        else:
            work.sent += rewriter.sent
        work.opened = None
        await opened.close()

    async def _move(self, work: Work, failure: ReplicaFailed) -> OpenedStream | None:
        """Open the rest of the answer at another replica. Raises `failure` where that cannot be."""
        if not work.is_movable:
            raise failure
        await work.client.send(sse.write_comment(continuing.COMMENT))
        while work.moves < continuing.MOVES_MAX:
            work.moves += 1
            try:
                moved = work.opened = await self._trying.reopen(work)
            except ReplicaFailed:
                continue
            except ApiError as error:
                raise failure from error
            if moved is None:
                await work.client.send(sse.write_event(json.dumps(_length_chunk(work)).encode()))
            return moved
        raise failure

    def _last_words(self, work: Work) -> bytes:
        """The count where it was requested, and [DONE]."""
        request, last = work.request, b""
        if (request.body.get("stream_options") or {}).get("include_usage"):
            usage = tokens.usage_object(request, work.total)
            last = sse.write_event(json.dumps(work.chunk([], usage=usage)).encode())
        return last + sse.DONE_EVENT

    def _report_answered(
        self, work: Work, opened: Opened, text: str, whole: dict[str, Any] | None, commitment: Any
    ) -> None:
        if self._on_answered is not None and work.request.endpoint.verify_share > 0:
            self._on_answered(Answered(work.request, opened.slot.lease_id, opened.body, text, whole, commitment))


def _length_chunk(work: Work) -> dict[str, Any]:
    """All tokens had been written; only the engine's finish event was lost."""
    nothing: dict[str, Any] = {"delta": {}} if work.request.kind == "chat" else {"text": ""}
    return work.chunk([{"index": 0, **nothing, "finish_reason": "length"}])


def _first_text(whole: dict[str, Any]) -> str:
    choices = whole.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    message = first.get("message")
    text = message.get("content") if isinstance(message, dict) else first.get("text")
    return text if isinstance(text, str) else ""
