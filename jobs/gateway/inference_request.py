"""One inference request that passed validation, and the client that waits for its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from uuid import UUID

from jobs.gateway.messages import EndpointRow, KeyGrant, Status

Kind = Literal["chat", "completion", "embedding"]
Header = tuple[bytes, bytes]


@dataclass(frozen=True)
class InferenceRequest:
    """A validated request of an authorised caller to an open endpoint. Times are the event loop's clock, in seconds."""

    request_id: UUID
    kind: Kind
    body: dict[str, Any]  # the request's JSON, validated as far as the frontend reads it
    is_stream: bool
    grant: KeyGrant
    endpoint: EndpointRow
    received_at: float
    deadline: float  # by then it has ended
    is_hedged: bool = False  # the caller pays for a second try beside a slow first one

    @property
    def path(self) -> str:
        """The engine's path."""
        return {"chat": "/v1/chat/completions", "completion": "/v1/completions", "embedding": "/v1/embeddings"}[
            self.kind
        ]


@dataclass(frozen=True)
class Used:
    """What one replica's part of a request used: priced by metering, kept by the spool until it is booked."""

    request: InferenceRequest
    part: int
    version: int
    lease_id: UUID | None
    status: Status
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    is_reported: bool = False  # the engine reported its count, so the agent of its node saw one
    queue_ms: int = 0
    first_token_ms: int | None = None
    total_ms: int = 0


Meter = Callable[[Used], None]  # never raises, never waits


class ClientGone(Exception):
    """The caller hung up, or reads nothing for too long: whatever works for it stops."""


class Client(Protocol):
    """The caller's end of one request: `start` once, then `send`, then `end`; or `answer`."""

    has_started: bool

    async def start(self, status: int, headers: Sequence[Header]) -> None:
        """Send the head. Raises ClientGone."""

    async def send(self, chunk: bytes) -> None:
        """Send a piece of the body; returns once it is handed to the connection, so that a slow reader is not sent
        more.

        Raises ClientGone.
        """

    async def end(self) -> None:
        """The body is complete. Raises ClientGone."""

    async def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """A whole answer at once; nothing where the caller is gone."""

    async def until_gone(self) -> None:
        """Returns when the caller has hung up; meant to be waited for beside the work."""
