"""Probes replicas that were put aside, and replicas without requests, for one real token.

A tunnel and an HTTP 200 prove nothing about the engine; one token of one small request does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from uuid import UUID

from jobs.gateway.answering.opening import ANSWER_BYTES_MAX
from jobs.gateway.engines.upstream import Announced, Replicas, UpstreamError
from jobs.gateway.routing.replica_pool import ReplicaPool
from jobs.gateway.routing.replica_view import ReplicaView
from provider_agent.protocol.tunnel.frames import OWN_REQUEST
from runtimes.contract import Capability

PROBE_SECONDS_MAX = 30.0
PROBES_MAX = 16  # at once

log = logging.getLogger(__name__)


class Probing:
    """Starts probes that are due; `start_due` is to be called about once a second."""

    def __init__(self, replicas: Replicas, pool: ReplicaPool, clock: Callable[[], float]) -> None:
        self._replicas, self._pool, self._clock = replicas, pool, clock
        self._tasks: set[asyncio.Task[None]] = set()

    def start_due(self) -> None:
        """Probe whoever is due and has nothing better to do."""
        now = self._clock()
        for lease_id, view in self._pool.views().items():
            if now >= view.probe_at and not view.is_probed and len(self._tasks) < PROBES_MAX:
                view.is_probed = True
                task = asyncio.get_running_loop().create_task(self.probe(lease_id, view))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def probe(self, lease_id: UUID, view: ReplicaView) -> None:
        """Request one token, and record the result."""
        was_aside = not view.is_good
        try:
            async with asyncio.timeout(PROBE_SECONDS_MAX):
                why = await self._ask(lease_id, view.announced)
        except (TimeoutError, UpstreamError) as error:
            why = str(error) or f"nothing came for {PROBE_SECONDS_MAX:.0f} s"
        finally:
            view.is_probed = False
        if why:
            view.note_probe_failed(self._clock(), why)
            log.warning("A replica gave no token when asked for one: %s", why, extra={"lease_id": str(lease_id)})
            return
        view.readmit(self._clock())
        if was_aside:
            log.info("A replica gave a real token and is back.", extra={"lease_id": str(lease_id)})
            self._pool.pump()

    async def close(self) -> None:
        """End those under way."""
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _ask(self, lease_id: UUID, engine: Announced) -> str:
        """Why it is no good; empty: it gave a token."""
        upstream = self._replicas.upstream(lease_id)
        if upstream is None:
            return "there is no route to it"
        path, body = probe_for(engine)
        answer = await upstream.request(
            "POST",
            path,
            [(b"content-type", b"application/json"), OWN_REQUEST],
            json.dumps(body).encode(),
            seconds=PROBE_SECONDS_MAX,
        )
        try:
            data = bytearray()
            async for chunk in answer.chunks():
                data += chunk
                if len(data) > ANSWER_BYTES_MAX:
                    return "its answer has no end"
            return "" if answer.status == 200 and is_token(path, bytes(data)) else f"it answered {answer.status}"
        finally:
            await answer.close()


def probe_for(engine: Announced) -> tuple[str, dict[str, object]]:
    """The smallest request that needs the model."""
    served_as = engine.details.get("served_as")
    body: dict[str, object] = {"model": served_as} if isinstance(served_as, str) else {}
    if Capability.COMPLETIONS in engine.capabilities:
        return "/v1/completions", body | {"prompt": "1", "max_tokens": 1, "temperature": 0}
    if Capability.CHAT in engine.capabilities:
        messages = [{"role": "user", "content": "1"}]
        return "/v1/chat/completions", body | {"messages": messages, "max_tokens": 1, "temperature": 0}
    return "/v1/embeddings", body | {"input": "1"}


def is_token(path: str, data: bytes) -> bool:
    """Whether an answer to the probe holds something that was computed."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return False
    if not isinstance(answer, dict) or answer.get("error") is not None:
        return False
    if path == "/v1/embeddings":
        return bool(answer.get("data"))
    usage = answer.get("usage")
    counted = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return bool(answer.get("choices")) and counted != 0
