"""What this process remembers of a node, only to do less work; losing it costs a query.

An idle node's answer is kept until the node is woken or some seconds have passed. Reports that were taken in already
need not be taken in again, unless they report something that runs: then each is a sign of life.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from uuid import UUID

from jobs.sync.answers import Answer
from provider_agent.protocol import ATTEMPT_ENDS, SyncRequest

ANSWER_SECONDS = 600.0  # wakes end it earlier, and what `changes.py` finds
NODES_MAX = 50_000


@dataclass
class Remembered:
    """The newest sync that was taken in, and the answer, of one node."""

    boot_id: UUID | None = None
    time_ms: int = 0  # when the node signed it
    digest: str = ""
    answer: Answer | None = None
    answered_at: float = 0.0
    taking_in: asyncio.Lock = field(default_factory=asyncio.Lock)
    wakes: int = 0  # an answer that was computed before the newest wake is not kept


@dataclass
class Memory:
    """All nodes of this process."""

    nodes: dict[UUID, Remembered] = field(default_factory=dict)

    def of(self, node_id: UUID) -> Remembered:
        """What is known of a node; nothing at first."""
        if node_id not in self.nodes and len(self.nodes) >= NODES_MAX:
            self.nodes.clear()
        return self.nodes.setdefault(node_id, Remembered())

    def is_news(self, node_id: UUID, request: SyncRequest, time_ms: int) -> bool:
        """Whether the sync has something that was not applied.

        One that was signed before the newest is late or replayed: its content is out of date.
        """
        known = self.of(node_id)
        if request.boot_id != known.boot_id:
            return time_ms > known.time_ms
        if time_ms < known.time_ms:
            return False
        is_alive = any(report.state not in ATTEMPT_ENDS for report in request.leases)
        return is_alive or request.facts is not None or digest_of(request) != known.digest

    def remember(self, node_id: UUID, request: SyncRequest, time_ms: int) -> None:
        """The sync was taken in."""
        known = self.of(node_id)
        known.boot_id, known.time_ms, known.digest = request.boot_id, time_ms, digest_of(request)

    def answer_of(self, node_id: UUID, request: SyncRequest) -> Answer | None:
        """An answer that is still good."""
        known = self.of(node_id)
        is_fresh = time.monotonic() - known.answered_at < ANSWER_SECONDS
        return known.answer if is_fresh and not request.leases else None

    def keep(self, node_id: UUID, request: SyncRequest, answer: Answer, *, wakes: int) -> None:
        """Keep an idle node's answer, unless it was woken while it was computed."""
        known = self.of(node_id)
        if answer.is_idle and not request.leases and known.wakes == wakes:
            known.answer, known.answered_at = answer, time.monotonic()
        else:
            known.answer = None

    def wake(self, node_ids: list[UUID]) -> None:
        """Their answers are no longer good."""
        for node_id in node_ids:
            if known := self.nodes.get(node_id):
                known.wakes += 1
                known.answer = None

    def wake_all(self) -> None:
        """Nobody's answer is good: wakes may have been missed."""
        self.wake(list(self.nodes))


def digest_of(request: SyncRequest) -> str:
    """Changes when the node's report of its leases does."""
    return hashlib.sha256("\n".join(report.model_dump_json() for report in request.leases).encode()).hexdigest()
