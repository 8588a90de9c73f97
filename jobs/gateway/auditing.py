"""A share of an endpoint's answers is computed again by another replica, after the caller has them; nobody waits.

    1. Every answer of an endpoint that is verified is asked to commit (`prepare`), with a seed that its replica did not
       choose. Which ones are checked is drawn afterwards, by a secret of this process: no replica can tell.
    2. Another node of the same version checks it, of another provider where there is one (POST /souk/v1/check).
       Some checks come with a twin whose commitment was spoilt: who calls that a match has computed nothing.
    3. Where it does not match, a third node is asked: two against one says who is wrong. Without a third it is unclear.

What a gateway saw itself (no commitment, a spoilt one called good) is a row whose `checked_by` is the lease itself.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol
from uuid import UUID

from jobs.gateway.asked import Asked
from jobs.gateway.table import AuditRow, ReplicaRow
from jobs.gateway.upstream import Replicas, UpstreamError
from runtimes.contract import Capability

CHECK_PATH: Final = "/souk/v1/check"
QUEUE_MAX: Final = 64  # answers that wait to be checked; beyond it the newest are let go
QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024
ITEM_BYTES_MAX: Final = 24 * 1024 * 1024  # a commitment and its tokens; whoever sends more wants not to be checked
ROWS_MAX: Final = 2000  # that wait to be taken
AT_ONCE: Final = 2
CHECK_SECONDS: Final = 120.0
VERDICT_BYTES_MAX: Final = 64 * 1024
CHECKERS_MAX: Final = 4  # asked about one answer, those that failed to say anything included
DETAIL_CHARACTERS_MAX: Final = 2000
FAULTS_MAX: Final = 16
SPOILT_ONE_IN: Final = 8
SPOILT_BYTES: Final = 64
SEED_BITS: Final = 53  # JSON's whole numbers are exact so far

Verdict = Literal["match", "mismatch", "unclear"]

logger = logging.getLogger(__name__)


class Answered(Protocol):
    """A whole answer of one replica: what the engine was sent, said, and committed to."""

    @property
    def asked(self) -> Asked:
        """The request."""

    @property
    def lease_id(self) -> UUID:
        """Who answered all of it."""

    @property
    def body(self) -> Mapping[str, Any]:
        """As the engine got it."""

    @property
    def text(self) -> str:
        """Of the first choice, as the caller got it."""

    @property
    def whole(self) -> Mapping[str, Any] | None:
        """The answer in one piece; None: it was a stream."""

    @property
    def commitment(self) -> Any:
        """The engine's `souk_commitment`; None: it gave none."""


class Directory(Protocol):
    """What the newest table says."""

    def replicas_of(self, endpoint_id: UUID) -> Sequence[ReplicaRow]:
        """Leases behind an endpoint."""


@dataclass(frozen=True)
class _Item:
    request_id: UUID
    endpoint_id: UUID
    lease_id: UUID
    check: bytes  # the body of the question
    digest: str  # of it, for the record
    twin: bytes  # the same with a spoilt commitment; empty: none


@dataclass(frozen=True)
class _Said:
    is_match: bool
    detail: str


def prepare(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body for a replica of a verified endpoint: it commits, and draws by a seed that it did not choose."""
    seed = body.get("seed")
    return {**body, "souk_commit": True, "seed": seed if seed is not None else secrets.randbits(SEED_BITS)}


class Auditor:
    """One queue and a few checks at once."""

    def __init__(
        self,
        replicas: Replicas,
        directory: Directory,
        *,
        secret: bytes | None = None,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._replicas, self._directory, self._now_ms = replicas, directory, now_ms
        self._secret = secret or secrets.token_bytes(32)
        self._queue: deque[_Item] = deque()
        self._queued_bytes = 0
        self._some = asyncio.Event()
        self._rows: list[AuditRow] = []
        self.checked = self.dropped = 0

    def consider(self, answered: Answered) -> None:
        """Draw whether this answer is checked, and keep it if so. Never waits, never raises."""
        asked = answered.asked
        if asked.kind == "embedding" or not self._is_drawn(asked):
            return
        if not isinstance(answered.commitment, list) or not answered.commitment:
            self._see_wrong(asked.request_id, asked.endpoint.endpoint_id, answered.lease_id, "no commitment")
            return
        try:
            item = self._item(answered)
            if len(item.check) > ITEM_BYTES_MAX:
                raise ValueError("larger than any commitment")
        except (TypeError, ValueError, KeyError, AttributeError):
            detail = "its commitment is not one"
            self._see_wrong(asked.request_id, asked.endpoint.endpoint_id, answered.lease_id, detail)
            return
        size = len(item.check) + len(item.twin)
        if len(self._queue) >= QUEUE_MAX or self._queued_bytes + size > QUEUE_BYTES_MAX:
            self.dropped += 1
            return
        self._queue.append(item)
        self._queued_bytes += size
        self._some.set()

    async def run(self) -> None:
        """Check what was drawn until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work())

    def take_rows(self) -> list[AuditRow]:
        """What came of checks since the last call."""
        rows, self._rows = self._rows, []
        return rows

    # --- below

    def _is_drawn(self, asked: Asked) -> bool:
        drawn = hmac.digest(self._secret, asked.request_id.bytes, "sha256")
        return int.from_bytes(drawn[:8], "big") / 2**64 < asked.endpoint.verify_share / 100

    def _item(self, answered: Answered) -> _Item:
        asked = answered.asked
        body = {name: value for name, value in answered.body.items() if name not in ("stream", "stream_options")}
        claims = _claims(answered)
        question = {"kind": asked.kind, "request": body, "answers": claims}
        check = json.dumps(question, separators=(",", ":")).encode()
        twin = b""
        if secrets.randbelow(SPOILT_ONE_IN) == 0:
            twin = json.dumps(question | {"answers": [_spoilt(claim) for claim in claims]}).encode()
        digest = hashlib.sha256(check).hexdigest()
        return _Item(asked.request_id, asked.endpoint.endpoint_id, answered.lease_id, check, digest, twin)

    async def _work(self) -> None:
        while True:
            while not self._queue:
                self._some.clear()
                await self._some.wait()
            item = self._queue.popleft()
            self._queued_bytes -= len(item.check) + len(item.twin)
            try:
                await self._check(item)
            except Exception:
                logger.exception("An answer could not be checked.", extra={"request_id": str(item.request_id)})

    async def _check(self, item: _Item) -> None:
        """Ask one; where it does not match, another."""
        said: list[tuple[UUID, _Said]] = []
        for lease_id in self._checkers(item):
            answer = await self._ask(lease_id, item)
            if answer is None:
                continue
            said.append((lease_id, answer))
            if len(said) == 2 or answer.is_match:
                break
        if not said:
            self.dropped += 1
            return
        self.checked += 1
        for lease_id, answer in said:
            doubt: Verdict = "mismatch" if len(said) > 1 else "unclear"
            self._add_row(
                AuditRow(
                    request_id=item.request_id,
                    endpoint_id=item.endpoint_id,
                    lease_id=item.lease_id,
                    checked_by=lease_id,
                    verdict="match" if answer.is_match else doubt,
                    detail=f"{answer.detail} {item.digest[:16]}"[-DETAIL_CHARACTERS_MAX:],
                    at_ms=self._now_ms(),
                )
            )

    def _checkers(self, item: _Item) -> list[UUID]:
        """Who may check it, in the order in which they are asked: other nodes, each once, other providers first."""
        announced = self._replicas.announced()
        rows = {row.lease_id: row for row in self._directory.replicas_of(item.endpoint_id)}
        own = rows.get(item.lease_id)
        if own is None:
            return []
        able = [
            row
            for row in rows.values()
            if row.version == own.version
            and row.node_id != own.node_id
            and row.state == "ready"
            and row.lease_id in announced
            and Capability.COMMITS.value in announced[row.lease_id].capabilities
        ]
        secrets.SystemRandom().shuffle(able)
        seen_nodes, seen_providers = set(), {own.provider_id}
        first: list[UUID] = []
        rest: list[UUID] = []
        for row in able:
            if row.node_id in seen_nodes:
                continue
            seen_nodes.add(row.node_id)
            is_other = row.provider_id is not None and row.provider_id not in seen_providers
            (first if is_other else rest).append(row.lease_id)
            seen_providers.add(row.provider_id)
        return [*first, *rest][:CHECKERS_MAX]

    async def _ask(self, lease_id: UUID, item: _Item) -> _Said | None:
        """A replica's word on it; None where it gave none, or showed that its word is worth nothing."""
        questions = [item.check, *([item.twin] if item.twin else [])]
        order = list(range(len(questions)))
        secrets.SystemRandom().shuffle(order)
        said: dict[int, _Said | None] = {}
        for index in order:
            said[index] = await self._post(lease_id, questions[index])
        spoilt = said.get(1)
        if spoilt is not None and spoilt.is_match:
            detail = "called a spoilt commitment a match"
            self._see_wrong(item.request_id, item.endpoint_id, lease_id, detail)
            return None
        return said[0]

    async def _post(self, lease_id: UUID, body: bytes) -> _Said | None:
        upstream = self._replicas.upstream(lease_id)
        if upstream is None:
            return None
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                answer = await upstream.request("POST", CHECK_PATH, headers, body, seconds=CHECK_SECONDS)
                try:
                    data = await _read(answer.chunks())
                finally:
                    await answer.close()
            return _verdict(json.loads(data)) if answer.status == 200 else None
        except (UpstreamError, TimeoutError, ValueError, TypeError, AttributeError, RecursionError):
            return None

    def _see_wrong(self, request_id: UUID, endpoint_id: UUID, lease_id: UUID, detail: str) -> None:
        """What this gateway saw itself."""
        self._add_row(
            AuditRow(
                request_id=request_id,
                endpoint_id=endpoint_id,
                lease_id=lease_id,
                checked_by=lease_id,
                verdict="mismatch",
                detail=detail,
                at_ms=self._now_ms(),
            )
        )

    def _add_row(self, row: AuditRow) -> None:
        if len(self._rows) < ROWS_MAX:
            self._rows.append(row)
        else:
            self.dropped += 1


def _claims(answered: Answered) -> list[dict[str, Any]]:
    """The choices that the caller got, each with what was committed to. Raises ValueError, KeyError, TypeError."""
    got: list[tuple[int, str | None, str | None]]
    committed = {int(one["index"]): one for one in answered.commitment}
    if set(committed) != set(range(_choices(answered.body))):
        raise ValueError("not every choice was committed to, or more than there are")
    if answered.whole is not None:
        choices = answered.whole["choices"]
        got = [(int(choice["index"]), _text(choice), choice.get("finish_reason")) for choice in choices]
    else:  # of a stream of several choices, or one too long to be kept, the text is not known
        text = answered.text if len(committed) == 1 and answered.text else None
        got = [(index, text, None) for index in sorted(committed)]
    return [
        {
            "index": index,
            "text": text,
            "finish_reason": finish,
            "output_ids": committed[index]["output_ids"],
            "commitment": committed[index]["commitment"],
        }
        for index, text, finish in got
    ]


def _choices(body: Mapping[str, Any]) -> int:
    """How many answers a request asks for."""
    prompt = body.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
    return prompts * int(body.get("n") or 1)


def _text(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    return str((message.get("content") if isinstance(message, dict) else choice.get("text")) or "")


def _spoilt(claim: Mapping[str, Any]) -> dict[str, Any]:
    """The same claim with its last numbers made up: only who computes the answer again can tell."""
    try:
        data = base64.b64decode(claim["commitment"], validate=True)
    except binascii.Error:
        return dict(claim)
    made_up = bytes(secrets.randbelow(0xFF) for _ in range(min(SPOILT_BYTES, len(data) // 4)))
    return {**claim, "commitment": base64.b64encode(data[: len(data) - len(made_up)] + made_up).decode()}


async def _read(chunks: Any) -> bytes:
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > VERDICT_BYTES_MAX:
            raise ValueError("a verdict is short")
    return bytes(data)


def _verdict(said: Any) -> _Said | None:
    """What a replica said, of which nothing is believed beyond its form."""
    if not isinstance(said, dict) or said.get("verdict") not in ("match", "mismatch"):
        return None
    choices = [choice for choice in said.get("choices", []) if isinstance(choice, dict)]
    faults = sorted({str(fault)[:32] for choice in choices for fault in choice.get("faults", [])[:FAULTS_MAX]})
    numbers: dict[str, Any] = next(
        (choice["numbers"] for choice in choices if isinstance(choice.get("numbers"), dict)), {}
    )
    shown = {str(name)[:32]: value for name, value in numbers.items() if isinstance(value, int | float)}
    detail = f"{', '.join(faults[:FAULTS_MAX])} {json.dumps(shown)}" if said["verdict"] == "mismatch" else ""
    return _Said(said["verdict"] == "match", detail.strip())
