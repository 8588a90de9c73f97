"""One request in flight: what it needs, which replica answers it, and the metering of its parts, once each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from jobs.gateway.answering.disconnects import RequestWatchdog
from jobs.gateway.answering.opening import OpenedStream, OpenedWhole
from jobs.gateway.engines import tokens
from jobs.gateway.engines.tokens import Count, PromptSize
from jobs.gateway.inference_request import Client, InferenceRequest, Meter, Used
from jobs.gateway.messages import Status
from jobs.gateway.routing.endpoint_queue import EndpointQueue, Search


@dataclass(eq=False)
class Work:
    """One request. Its parts are metered in order; the first carries what was read, the others what they wrote."""

    request: InferenceRequest
    client: Client
    watchdog: RequestWatchdog
    queue: EndpointQueue
    search: Search
    size: PromptSize
    tokens_max: int
    is_movable: bool
    meter: Meter
    clock: Callable[[], float]
    created: int = field(default_factory=lambda: int(time.time()))
    queue_seconds: float = 0.0
    opened: OpenedWhole | OpenedStream | None = None  # whose answer the client gets now
    tried: tuple[UUID, int] | None = None  # lease and version of the newest try
    first_token_ms: int | None = None
    sent: list[str] = field(default_factory=list)  # text of the parts before
    moves: int = 0
    parts: int = 0  # that were metered
    is_metered: bool = False  # the part that is under way
    input: int = 0
    cached: int = 0
    output: int = 0

    @property
    def answer_id(self) -> str:
        """The same over all replicas."""
        return ("cmpl-" if self.request.kind == "completion" else "chatcmpl-") + self.request.request_id.hex

    @property
    def total(self) -> Count:
        """Of all parts."""
        return Count(self.input, self.output, self.cached)

    def count_opened(self) -> Count:
        """What the replica that answers now has used so far, as far as the client got it."""
        if not isinstance(self.opened, OpenedStream):
            return Count(0, 0)
        return tokens.count_stream(
            self.size, self.opened.rewriter.received, self.queue.ratio, max_tokens=self.tokens_max - self.output
        )

    def meter_part(self, status: Status, count: Count) -> None:
        """What the replica that was tried last used; only once for each."""
        if self.is_metered:
            return
        self.is_metered = True
        if self.parts:
            count = Count(0, count.output, 0, count.by)  # it read the prompt again, which the caller did not request
        else:
            self.input, self.cached = count.input, count.cached
        self.output += count.output
        lease_id, version = self.tried or (None, 0)
        self.meter(
            Used(
                request=self.request,
                part=self.parts,
                version=version,
                lease_id=lease_id,
                status=status,
                input_tokens=count.input,
                output_tokens=count.output,
                cached_tokens=count.cached,
                is_reported=count.is_reported,
                queue_ms=round(1000 * self.queue_seconds),
                first_token_ms=self.first_token_ms if self.parts == 0 else None,
                total_ms=round(1000 * (self.clock() - self.request.received_at)),
            )
        )
        self.parts += 1

    def meter_broken(self, status: Status) -> None:
        """It ends here: what came of it counts; nothing where no replica was reached or none had begun."""
        if self.tried is not None:
            count = self.count_opened()
            if self.opened is not None and not self.is_metered:
                self.opened.slot.view.note_tokens(count)
            self.meter_part(status, count)

    def chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """A stream's chunk of the gateway's own."""
        kind = "chat.completion.chunk" if self.request.kind == "chat" else "text_completion"
        chunk = {"id": self.answer_id, "object": kind, "created": self.created, "model": self.request.body["model"]}
        return chunk | {"choices": choices} | more
