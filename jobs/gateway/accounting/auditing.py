"""A share of an endpoint's answers is computed again by another replica, after the caller has them; nobody waits.

    1. Every answer of a verified endpoint has to come with a commitment, over a seed that its replica did not choose
       (`capabilities.engine_body`). Which answers are checked is drawn afterwards, by a secret of this process: no
       replica can know it.
    2. Another node of the same version checks it, of another provider where there is one (POST /souk/v1/check).
       Some checks come with a twin whose commitment was spoilt: who calls that a match has computed nothing.
    3. Where it does not match, a third node computes it: two against one decide who is wrong. Without a third it is
       unclear.

What a gateway found itself (no commitment, a spoilt one called good) is a row whose `checked_by` is the lease itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol
from uuid import UUID

from jobs.gateway.accounting.claims import Answered, Verdict, claims_of, spoilt, verdict_of
from jobs.gateway.engines.upstream import Replicas, UpstreamError
from jobs.gateway.inference_request import InferenceRequest
from jobs.gateway.messages import AuditRow, ReplicaRow
from provider_agent.protocol.tunnel.frames import OWN_REQUEST
from runtimes.contract import Capability

CHECK_PATH: Final = "/souk/v1/check"
QUEUE_MAX: Final = 64  # answers that wait to be checked; beyond it the newest are dropped
QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024
ITEM_BYTES_MAX: Final = 24 * 1024 * 1024  # a commitment and its tokens; a replica that sends more avoids the check
ROWS_MAX: Final = 2000  # that wait to be taken
AT_ONCE: Final = 2
CHECK_SECONDS: Final = 120.0
VERDICT_BYTES_MAX: Final = 64 * 1024
CHECKERS_MAX: Final = 4  # for one answer, those without a verdict included
DETAIL_CHARACTERS_MAX: Final = 2000
SPOILT_ONE_IN: Final = 8

logger = logging.getLogger(__name__)


class Directory(Protocol):
    """The newest table."""

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
        request = answered.request
        if request.kind == "embedding" or not self._is_drawn(request):
            return
        if not isinstance(answered.commitment, list) or not answered.commitment:
            self._report_wrong(request.request_id, request.endpoint.endpoint_id, answered.lease_id, "no commitment")
            return
        try:
            item = self._item(answered)
            if len(item.check) > ITEM_BYTES_MAX:
                raise ValueError("larger than any commitment")
        except (TypeError, ValueError, KeyError, AttributeError):
            detail = "its commitment is not one"
            self._report_wrong(request.request_id, request.endpoint.endpoint_id, answered.lease_id, detail)
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

    def _is_drawn(self, request: InferenceRequest) -> bool:
        drawn = hmac.digest(self._secret, request.request_id.bytes, "sha256")
        return int.from_bytes(drawn[:8], "big") / 2**64 < request.endpoint.verify_share / 100

    def _item(self, answered: Answered) -> _Item:
        request = answered.request
        body = {name: value for name, value in answered.body.items() if name not in ("stream", "stream_options")}
        claims = claims_of(answered)
        question = {"kind": request.kind, "request": body, "answers": claims}
        check = json.dumps(question, separators=(",", ":")).encode()
        twin = b""
        if secrets.randbelow(SPOILT_ONE_IN) == 0:
            twin = json.dumps(question | {"answers": [spoilt(claim) for claim in claims]}).encode()
        digest = hashlib.sha256(check).hexdigest()
        return _Item(request.request_id, request.endpoint.endpoint_id, answered.lease_id, check, digest, twin)

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
        """Have one node check it; where it does not match, another."""
        verdicts: list[tuple[UUID, Verdict]] = []
        for lease_id in self._checkers(item):
            answer = await self._ask(lease_id, item)
            if answer is None:
                continue
            verdicts.append((lease_id, answer))
            if len(verdicts) == 2 or answer.is_match:
                break
        if not verdicts:
            self.dropped += 1
            return
        self.checked += 1
        for lease_id, answer in verdicts:
            verdict_of_mismatch: Literal["mismatch", "unclear"] = "mismatch" if len(verdicts) > 1 else "unclear"
            self._add_row(
                AuditRow(
                    request_id=item.request_id,
                    endpoint_id=item.endpoint_id,
                    lease_id=item.lease_id,
                    checked_by=lease_id,
                    verdict="match" if answer.is_match else verdict_of_mismatch,
                    detail=f"{answer.detail} {item.digest[:16]}"[-DETAIL_CHARACTERS_MAX:],
                    at_ms=self._now_ms(),
                )
            )

    def _checkers(self, item: _Item) -> list[UUID]:
        """The nodes that may check it, in the order of the calls: other nodes, each once, other providers first."""
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

    async def _ask(self, lease_id: UUID, item: _Item) -> Verdict | None:
        """A replica's verdict on it; None where it gave none, or called a spoilt commitment a match."""
        questions = [item.check, *([item.twin] if item.twin else [])]
        order = list(range(len(questions)))
        secrets.SystemRandom().shuffle(order)
        verdicts: dict[int, Verdict | None] = {}
        for index in order:
            verdicts[index] = await self._post(lease_id, questions[index])
        spoilt = verdicts.get(1)
        if spoilt is not None and spoilt.is_match:
            detail = "called a spoilt commitment a match"
            self._report_wrong(item.request_id, item.endpoint_id, lease_id, detail)
            return None
        return verdicts[0]

    async def _post(self, lease_id: UUID, body: bytes) -> Verdict | None:
        upstream = self._replicas.upstream(lease_id)
        if upstream is None:
            return None
        headers = [(b"content-type", b"application/json"), OWN_REQUEST]
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                answer = await upstream.request("POST", CHECK_PATH, headers, body, seconds=CHECK_SECONDS)
                try:
                    data = await _read(answer.chunks())
                finally:
                    await answer.close()
            return verdict_of(json.loads(data)) if answer.status == 200 else None
        except (UpstreamError, TimeoutError, ValueError, TypeError, AttributeError, RecursionError):
            return None

    def _report_wrong(self, request_id: UUID, endpoint_id: UUID, lease_id: UUID, detail: str) -> None:
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


async def _read(chunks: AsyncIterator[bytes]) -> bytes:
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > VERDICT_BYTES_MAX:
            raise ValueError("a verdict is short")
    return bytes(data)
