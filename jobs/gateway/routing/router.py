"""Which replica answers: a pure choice, explained in one sentence.

1. The version, by its share: a conversation stays with its version while that has replicas (weighted rendezvous
   hashing).
2. Of its replicas, the one that has this prompt's beginning in its cache (rendezvous hashing), unless it has more than
   LOAD_BOUND times its fair part of the requests: then the next in this prompt's order ("consistent hashing with
   bounded loads", Mirrokni, Thorup, Zadimoghaddam, 2016).
3. Without a beginning worth caching, the one that is done soonest: requests in flight by measured speed. Among those
   that are as good (NEAR), the cheapest.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from jobs.gateway.inference_request import InferenceRequest
from jobs.gateway.messages import VersionRow

LOAD_BOUND = 1.25
NEAR = 1.10
PREFIX_CHARS_MIN = 64  # a shorter beginning is not worth a place in a cache
PREFIX_CHARS_MAX = 2048  # such as one system prompt before many questions
START_CHARS_MAX = 8192  # of one message, by which conversations are distinguished
START_MESSAGES_MAX = 8
_MASK = (1 << 64) - 1


class Candidate(NamedTuple):
    """A replica that could take one request more."""

    lease_id: UUID
    version: int
    in_flight: int
    limit: int
    seconds: float  # a request takes, measured or assumed
    usd_micros_per_hour: int = 0

    @property
    def has_room(self) -> bool:
        """It may be given another."""
        return self.in_flight < self.limit


class Choice(NamedTuple):
    """Who answers, and why."""

    lease_id: UUID
    why: str


class Conversation(NamedTuple):
    """What of a request stays the same while it goes on."""

    number: int  # who talks, and how it began
    prefix: int | None  # of the prompt's beginning, the same for whoever sends it; None: too short to matter


UNNUMBERED = Conversation(0, None)


def choose(
    candidates: Sequence[Candidate], versions: Sequence[VersionRow], conversation: Conversation, *, draw: int = 0
) -> Choice | None:
    """One of `candidates` with free capacity, or None. `draw` decides between equals."""
    version = choose_version(candidates, versions, conversation.number)
    if version is None:
        return None
    group = [each for each in candidates if each.version == version]
    if conversation.prefix is not None and len(group) > 1:
        return _by_prefix(group, conversation.prefix)
    return _by_load(group, draw)


def choose_version(candidates: Sequence[Candidate], versions: Sequence[VersionRow], number: int) -> int | None:
    """The version by share, of those with free capacity; one without a share only where no other has any replica."""
    there = {each.version for each in candidates}
    if len(there) > 1:
        there = {row.version for row in versions if row.share > 0 and row.version in there} or there
    wanted = {each.version for each in candidates if each.version in there and each.has_room}
    if len(wanted) < 2:
        return next(iter(wanted), None)
    shares = {row.version: row.share for row in versions}
    return max(wanted, key=lambda version: _weighted(mix(number, version), shares.get(version, 1)))


def conversation_of(request: InferenceRequest, *, is_numbered: bool = True) -> Conversation:
    """By the prompt's beginning: in a chat, everything up to its first question.

    `is_numbered`: whether there are versions to choose from; where not, a short prompt needs no hash.
    """
    start = _beginning(request)
    if not is_numbered and len(start) < PREFIX_CHARS_MIN:
        return UNNUMBERED
    whole = _hash(start)
    number = mix(whole, request.grant.key_id.int & _MASK)
    if request.kind == "embedding" or len(start) < PREFIX_CHARS_MIN:
        return Conversation(number, None)
    return Conversation(number, whole if len(start) <= PREFIX_CHARS_MAX else _hash(start[:PREFIX_CHARS_MAX]))


def mix(one: int, other: int) -> int:
    """64 bits that depend on all bits of both (the finalizer of splitmix64)."""
    value = (one ^ (other * 0x9E3779B97F4A7C15)) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _by_prefix(group: Sequence[Candidate], prefix: int) -> Choice | None:
    order = sorted(group, key=lambda each: mix(prefix, each.lease_id.int & _MASK), reverse=True)
    speeds = sum(1 / each.seconds for each in group)
    total = sum(each.in_flight for each in group) + 1
    for place, each in enumerate(order):
        fair = math.ceil(LOAD_BOUND * total / each.seconds / speeds)
        if each.in_flight < fair and each.has_room:
            return Choice(each.lease_id, f"number {place + 1} of {len(order)} for this beginning")
    return None if not any(each.has_room for each in group) else _by_load(group, prefix)


def _by_load(group: Sequence[Candidate], draw: int) -> Choice | None:
    free = [each for each in group if each.has_room]
    if not free:
        return None
    if len(free) == 1:
        return Choice(free[0].lease_id, "the only one with room")
    soonest = min((each.in_flight + 1) * each.seconds for each in free)
    near = [each for each in free if (each.in_flight + 1) * each.seconds <= soonest * NEAR]
    best = min(near, key=lambda each: (each.usd_micros_per_hour, mix(draw, each.lease_id.int & _MASK)))
    return Choice(best.lease_id, f"soonest of {len(free)}, cheapest of {len(near)} that are as soon")


def _weighted(number: int, share: int) -> float:
    """Rendezvous hashing by weight: the largest wins with a probability in proportion to its share."""
    return -max(share, 1) / math.log((number + 1) / (_MASK + 2))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "big")


def _beginning(request: InferenceRequest) -> str:
    body: dict[str, Any] = request.body
    if request.kind != "chat":
        return _text(body.get("prompt" if request.kind == "completion" else "input"))[:START_CHARS_MAX]
    parts: list[str] = []
    for message in (body.get("messages") or [])[:START_MESSAGES_MAX]:
        if not isinstance(message, dict):
            continue
        parts.append(f"{message.get('role')}:{_text(message.get('content'))}"[:START_CHARS_MAX])
        if message.get("role") == "user":
            break
    return "\n".join(parts)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        first = value[0]
        return str(first.get("text", "")) if isinstance(first, dict) else str(first)
    return ""
