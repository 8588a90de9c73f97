"""How a request reaches a replica: through a tunnel, or by a plain connection to an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID


class UpstreamError(Exception):
    """The replica did not answer, or broke off; `is_sent`: it may have begun to work."""

    def __init__(self, message: str, *, is_sent: bool) -> None:
        super().__init__(message)
        self.is_sent = is_sent


class Answer(Protocol):
    """A response that has begun. `close` before the end cancels the request at the engine."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]  # names in lower case

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes, with back-pressure: who does not read is not sent more. Raises UpstreamError."""

    async def close(self) -> None:
        """Let go; harmless to repeat."""


class Upstream(Protocol):
    """A route to one replica."""

    async def request(
        self, method: str, path: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, seconds: float
    ) -> Answer:
        """Send it and wait at most `seconds` for the response's beginning. Raises UpstreamError."""


@dataclass(frozen=True)
class Announced:
    """What an agent announces of a replica: the runtime's `ready` event."""

    lease_id: UUID
    engine: str
    capabilities: frozenset[str]
    context: int | None
    details: Mapping[str, object] = field(default_factory=dict)  # the rest of the event


class Replicas(Protocol):
    """Who can be reached now; the tunnel hub is one, and tests and benchmarks have others."""

    def announced(self) -> Mapping[UUID, Announced]:
        """By lease id, every replica with a live route to it; the returned mapping does not change any more."""

    def upstream(self, lease_id: UUID) -> Upstream | None:
        """The route to a replica; None when there is none now."""
