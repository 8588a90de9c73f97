"""A checked request gets its answer, or an error that says why.

1. Refuse what no engine of the endpoint can do (capabilities.py).
2. Find a replica that can (router.py), or wait for one (placing.py, waiting.py).
3. Try it up to the first sign of an answer (opening.py); what fails before is tried at another (trying.py), and where
   the caller asked for it a second one is tried beside a slow first one (hedging.py).
4. Pass the answer on (relaying.py, streaming.py). A stream whose replica dies goes on at another where it can
   (continuing.py), else it ends with an error event.
5. Tell the meter what each replica's part used, once, before the client is told that the answer is complete (work.py).
   What was tried and brought nothing is not billed; nor is the prompt that a second replica reads again.

While a request waits for a replica nothing is sent, also to streams: a status that was sent cannot change any more, and
clients try again by themselves after a 429 or a 503, but not after a stream that ends in an error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

from jobs.gateway import capabilities, continuing, tokens
from jobs.gateway.asked import Asked, Client, ClientGone, Meter
from jobs.gateway.claims import Answered
from jobs.gateway.errors import ApiError
from jobs.gateway.opening import DeadlineOver, OpenedWhole, ReplicaFailed
from jobs.gateway.placing import Directory, Placing, Search
from jobs.gateway.probing import Probing
from jobs.gateway.relaying import Relay
from jobs.gateway.table import EndpointLoad, ReplicaLoad
from jobs.gateway.trying import Patience, Trying
from jobs.gateway.upstream import Replicas
from jobs.gateway.watching import Patrol, Watch
from jobs.gateway.work import Work

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
        self._clock, self._meter, self._patrol = clock, meter, Patrol()
        self._placing = Placing(replicas, directory, on_wanted, self._clock)
        self._probing = Probing(replicas, self._placing, self._clock)
        self._trying = Trying(self._placing, patience or Patience(), self._clock)
        self._relay = Relay(self._trying, self._clock, on_answered)

    async def answer(self, asked: Asked, client: Client) -> None:
        """Answer it. Raises ApiError while nothing was sent; returns quietly when the caller is gone.

        Each replica's part is metered once; a request that reached no replica is not metered.
        """
        work = self._begin(asked, client)
        try:
            await self._answer(work)
        except ClientGone:
            work.meter_broken("cancelled")
        except asyncio.CancelledError:
            work.meter_broken("cancelled")
            if not work.watch.take_back_gone():
                raise
        finally:
            work.watch.close()
            if work.opened is not None:
                await work.opened.close()

    def loads(self) -> list[EndpointLoad]:
        """Of each endpoint, since the last call and now. Meant to be called about once a second, within the loop:
        replicas are judged, and probes that are due are started."""
        self._placing.judge()
        self._probing.start_due()
        return self._placing.loads()

    def replica_loads(self) -> list[ReplicaLoad]:
        """Of each replica that can be reached."""
        return self._placing.replica_loads()

    def on_change(self) -> None:
        """A replica came or went: those who wait are looked after at once, and not some moments later."""
        self._placing.pump()

    async def close(self) -> None:
        """End what runs beside the requests."""
        await self._probing.close()
        await self._placing.close()

    def _begin(self, asked: Asked, client: Client) -> Work:
        desk, limits = self._placing.desk(asked.endpoint.endpoint_id), asked.endpoint.limits
        desk.arrived += 1
        if not asked.body.keys() <= capabilities.PLAIN:
            capabilities.refuse_removed(asked)
        size, tokens_max = tokens.measure_prompt(asked), capabilities.tokens_max(asked, limits)
        capabilities.refuse_too_long(asked, size, limits, limits.context)
        return Work(
            asked=asked,
            client=client,
            desk=desk,
            search=Search(asked, desk, capabilities.needs(asked)),
            size=size,
            tokens_max=tokens_max,
            is_movable=continuing.can_move(asked),
            meter=self._meter,
            clock=self._clock,
            watch=Watch(client, self._patrol),  # last: nothing that could raise comes after it
        )

    async def _answer(self, work: Work) -> None:
        try:
            opened = work.opened = await self._trying.open(work)
        except DeadlineOver:
            work.desk.failed += 1
            work.meter_broken("timeout")
            raise ApiError(504, "timeout", "the request's time was up", type="server_error") from None
        except ReplicaFailed as failure:
            work.desk.failed += 1
            work.meter_broken("failed")
            raise _failed(failure) from failure
        except ApiError as error:
            if work.tried is not None:
                work.meter_broken("refused" if error.status == 400 else "failed")
            raise
        work.first_token_ms = round(1000 * (opened.first_at - work.asked.received_at))
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
