"""A validated request gets its answer, or an error with the reason.

1. Refuse what no engine of the endpoint can do (capabilities.py).
2. Find a replica that can (router.py), or wait for one (replica_pool.py, endpoint_queue.py).
3. Try it up to the first sign of an answer (opening.py); what fails before is tried at another (trying.py), and where
   the caller asked for it a second one is tried beside a slow first one (hedging.py).
4. Pass the answer on (relaying.py, streaming.py). A stream whose replica dies goes on at another where it can
   (continuing.py), else it ends with an error event.
5. Meter what each replica's part used, once, before the client gets the end of the answer (work.py).
   What was tried and brought nothing is not billed; nor is the prompt that a second replica reads again.

While a request waits for a replica nothing is sent, also to streams: a status that was sent cannot change any more, and
clients try again by themselves after a 429 or a 503, but not after a stream that ends in an error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

from jobs.gateway.accounting.claims import Answered
from jobs.gateway.answering import continuing
from jobs.gateway.answering.disconnects import DisconnectMonitor, RequestWatchdog
from jobs.gateway.answering.opening import DeadlineOver, OpenedWhole, ReplicaFailed
from jobs.gateway.answering.probing import Probing
from jobs.gateway.answering.relaying import Relay
from jobs.gateway.answering.trying import Patience, Trying
from jobs.gateway.answering.work import Work
from jobs.gateway.engines import tokens
from jobs.gateway.engines.upstream import Replicas
from jobs.gateway.errors import ApiError
from jobs.gateway.inference_request import Client, ClientGone, InferenceRequest, Meter
from jobs.gateway.messages import EndpointLoad, ReplicaLoad
from jobs.gateway.routing import capabilities
from jobs.gateway.routing.endpoint_queue import Search
from jobs.gateway.routing.replica_pool import Directory, ReplicaPool

RETRY_AFTER_SECONDS = 1.0  # where all tries failed


class Serving:
    """Answers requests by the replicas of this gateway."""

    def __init__(
        self,
        replicas: Replicas,
        directory: Directory,
        meter: Meter,
        *,
        on_wanted: Callable[[UUID], None],
        on_answered: Callable[[Answered], None] | None = None,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,  # which is the event loop's
    ) -> None:
        self._clock, self._meter, self._disconnect_monitor = clock, meter, DisconnectMonitor()
        self._pool = ReplicaPool(replicas, directory, on_wanted, self._clock)
        self._probing = Probing(replicas, self._pool, self._clock)
        self._trying = Trying(self._pool, patience or Patience(), self._clock)
        self._relay = Relay(self._trying, self._clock, on_answered)

    async def answer(self, request: InferenceRequest, client: Client) -> None:
        """Answer it. Raises ApiError while nothing was sent; returns quietly when the caller is gone.

        Each replica's part is metered once; a request that reached no replica is not metered.
        """
        work = self._begin(request, client)
        try:
            await self._answer(work)
        except ClientGone:
            work.meter_broken("cancelled")
        except asyncio.CancelledError:
            work.meter_broken("cancelled")
            if not work.watchdog.absorb_disconnect():
                raise
        finally:
            work.watchdog.close()
            if work.opened is not None:
                await work.opened.close()

    def loads(self) -> list[EndpointLoad]:
        """Of each endpoint, since the last call and now. Meant to be called about once a second, within the loop:
        replicas are judged, and probes that are due are started."""
        self._pool.judge()
        self._probing.start_due()
        return self._pool.loads()

    def replica_loads(self) -> list[ReplicaLoad]:
        """Of each replica that can be reached."""
        return self._pool.replica_loads()

    def on_change(self) -> None:
        """A replica came or went: those who wait are looked after at once, and not some moments later."""
        self._pool.pump()

    async def close(self) -> None:
        """End what runs beside the requests."""
        await self._probing.close()
        await self._pool.close()

    def _begin(self, request: InferenceRequest, client: Client) -> Work:
        queue, limits = self._pool.queue(request.endpoint.endpoint_id), request.endpoint.limits
        queue.arrived += 1
        if not request.body.keys() <= capabilities.PLAIN:
            capabilities.refuse_removed(request)
        size, tokens_max = tokens.measure_prompt(request), capabilities.tokens_max(request, limits)
        capabilities.refuse_too_long(request, size, limits, limits.context)
        return Work(
            request=request,
            client=client,
            queue=queue,
            search=Search(request, queue, capabilities.needs(request)),
            size=size,
            tokens_max=tokens_max,
            is_movable=continuing.can_move(request),
            meter=self._meter,
            clock=self._clock,
            watchdog=RequestWatchdog(client, self._disconnect_monitor),  # last: nothing that could raise comes after it
        )

    async def _answer(self, work: Work) -> None:
        try:
            opened = work.opened = await self._trying.open(work)
        except DeadlineOver:
            work.queue.failed += 1
            work.meter_broken("timeout")
            raise ApiError(504, "timeout", "the request's time was up", type="server_error") from None
        except ReplicaFailed as failure:
            work.queue.failed += 1
            work.meter_broken("failed")
            raise _failed(failure) from failure
        except ApiError as error:
            if work.tried is not None:
                work.meter_broken("refused" if error.status == 400 else "failed")
            raise
        work.first_token_ms = round(1000 * (opened.first_at - work.request.received_at))
        if isinstance(opened, OpenedWhole):
            await self._relay.send_whole(work, opened)
        else:
            await self._relay.send_stream(work, opened)


def _failed(failure: ReplicaFailed) -> ApiError:
    after = RETRY_AFTER_SECONDS
    if failure.is_busy:
        message = "every replica of this model is busy"
        return ApiError(429, "model_busy", message, type="rate_limit_error", retry_after=after)
    message = "the replicas of this model failed to answer; the request may be sent again"
    return ApiError(502, "replica_failed", message, type="server_error", retry_after=after)
