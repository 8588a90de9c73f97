"""Control-plane sync: report what is, receive what should be, converge. Level-triggered, so lost messages heal."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime
from uuid import UUID, uuid4

from provider_agent.context import AgentContext
from provider_agent.errors import AgentError, AssignmentRefused, JournalFailed, Refused, StaleFence
from provider_agent.lease.assignments import accept_assignment, accept_generation
from provider_agent.lease.attempts import Attempt
from provider_agent.lease.serving import accept_gateways
from provider_agent.node.device_checks import DeviceChecks
from provider_agent.node.links import LinkProbes
from provider_agent.protocol import (
    LEASES_PER_NODE_MAX,
    PROTOCOL_VERSION,
    AttemptState,
    Desired,
    Load,
    NodeFacts,
    Reason,
    SyncRequest,
    SyncResponse,
)
from provider_agent.updating.update_request import Updates

FACTS_SECONDS = 60.0
SPACING_SECONDS = 0.05  # between two polls, however fast the server answers
REFUSALS_MAX = 5  # of this many refusals in a row (401, 403) the agent leaves
NODE_GONE_STATUS = frozenset({401, 403})

log = logging.getLogger(__name__)


class Sync:
    """The sync loop, and its state between two polls."""

    def __init__(self, context: AgentContext, find_facts: Callable[[], NodeFacts]) -> None:
        self._context = context
        self._find_facts = find_facts
        self._boot_id = uuid4()
        self._known = ""
        self._sent_facts: NodeFacts | None = None
        self._facts_at = 0.0
        self._refusals = 0
        self.attempts: dict[UUID, Attempt] = {}
        self.checks = DeviceChecks(context)
        self.links = LinkProbes(context)
        self.updates = Updates(context.folder)
        self.node_state = "unknown"
        self.last_error = ""
        self.answered: Callable[[], None] = lambda: None  # called after each answer and each failure

    def adopt_all(self) -> None:
        """Take up every lease that the journal has; those that may have a program first, they have their devices."""
        for entry in sorted(self._context.journal.load_leases(), key=lambda e: e.state is AttemptState.ASSIGNED):
            attempt = Attempt(self._context, entry)
            self.attempts[entry.lease_id] = attempt
            attempt.launch()

    async def loop(self) -> None:
        """Poll until cancelled; raises Refused when the server keeps refusing this node and nothing runs here."""
        heartbeat, wake = self._context.heartbeat, self._context.wake
        while True:
            wake.clear()
            began = time.monotonic()
            known = self._known
            try:
                response = await self._poll_once()
            except AgentError as error:
                self._note_failure(error)
                await self._pause(heartbeat.record_failure())
                continue
            if response is None:  # something changed here: report it at once
                continue
            heartbeat.record_contact(response.beat_seconds, began)
            await self._converge(response)
            self.answered()
            left = SPACING_SECONDS
            if response.version == known:  # poll a server that does not hold polls once a beat
                left = max(heartbeat.wait_seconds() - (time.monotonic() - began), SPACING_SECONDS)
            await self._pause(left)

    async def _poll_once(self) -> SyncResponse | None:
        """One held poll; None when a change here made it stale and it was given up."""
        request = self._request()
        if request.facts is not None:
            self._sent_facts = None  # until the answer it is unknown what the server has
        polling = asyncio.ensure_future(self._context.client.sync(request))
        waking = asyncio.ensure_future(self._context.wake.wait())
        try:
            await asyncio.wait({polling, waking}, return_when=asyncio.FIRST_COMPLETED)
            if not polling.done():
                return None
            response = polling.result()
        finally:
            for task in (polling, waking):
                task.cancel()
            await asyncio.gather(polling, waking, return_exceptions=True)
        self._refusals = 0
        self.last_error = ""
        if request.facts is not None:
            self._sent_facts = request.facts
        return response

    def _request(self) -> SyncRequest:
        reports = [attempt.report() for attempt in self.attempts.values()]
        return SyncRequest(
            protocol=PROTOCOL_VERSION,
            boot_id=self._boot_id,
            known=self._known,
            wait_seconds=round(self._context.heartbeat.wait_seconds(), 3),
            leases=reports[:LEASES_PER_NODE_MAX],
            load=self._take_load(),
            facts=self._changed_facts(),
        )

    def _take_load(self) -> Load | None:
        """The newest load figures, once; the loss of some is harmless."""
        load, self._context.load = self._context.load, None
        return load

    def _changed_facts(self) -> NodeFacts | None:
        """The facts when the server does not have them yet."""
        now = time.monotonic()
        is_early = now < self._facts_at + FACTS_SECONDS and not self._context.facts_changed
        if self._sent_facts is not None and is_early:
            return None
        self._facts_at, self._context.facts_changed = now, False
        facts = self._find_facts()
        return facts if facts != self._sent_facts else None

    # --- converge

    async def _converge(self, response: SyncResponse) -> None:
        """Start what is new, stop what should stop, forget what is settled. A lease not named runs out by itself."""
        self._known = response.version
        self._context.client.learn_clock(response.server_time)
        self.node_state = response.node_state
        accept_gateways(self._context, response.gateways)
        for desired in response.desired:
            attempt = self.attempts.get(desired.lease_id)
            if attempt is None:
                self._accept(desired, response.server_time)
            else:
                self._adjust(attempt, desired, response.server_time)
        for lease_id in response.forget:
            await self._forget(lease_id)
        is_idle = all(attempt.entry.has_ended for attempt in self.attempts.values())
        self.checks.accept(response.check, is_idle=is_idle)
        self.links.accept(response.link, is_idle=is_idle)
        self.updates.accept(response.update, is_checking=self.checks.is_busy)

    def _accept(self, desired: Desired, server_time: datetime) -> None:
        try:
            entry = accept_assignment(self._context, desired)
        except (AssignmentRefused, StaleFence, JournalFailed, OSError) as error:
            log.error("Assignment refused: %s lease_id=%s", error, desired.lease_id)
            self.last_error = str(error)
            return
        self._stop_superseded(entry.assignment.device_uuids, entry.assignment.fence)
        attempt = Attempt(self._context, entry, server_time=server_time)
        self.attempts[entry.lease_id] = attempt
        log.info("Lease accepted. lease_id=%s job_id=%s", entry.lease_id, entry.assignment.job_id)
        if desired.action == "stop":
            attempt.request_stop(desired.stop_reason or Reason.CANCELLED_BY_OPERATOR)
        attempt.launch()

    def _stop_superseded(self, device_uuids: list[str], fence: int) -> None:
        """Stop the older leases of these devices: the server has ended them when it made a newer one."""
        for attempt in self.attempts.values():
            assignment = attempt.entry.assignment
            if assignment.fence < fence and set(assignment.device_uuids) & set(device_uuids):
                attempt.request_stop(Reason.LEASE_EXPIRED)

    def _adjust(self, attempt: Attempt, desired: Desired, server_time: datetime) -> None:
        if desired.fence != attempt.entry.assignment.fence:
            log.error("The server sent another fence than the assignment's. lease_id=%s", desired.lease_id)
            return
        attempt.extend_lease(desired.lease_until, server_time=server_time)
        if desired.assignment is not None and desired.action == "run":
            self._regroup(attempt, desired)
        if desired.action == "stop":
            attempt.request_stop(desired.stop_reason or Reason.CANCELLED_BY_OPERATOR)

    def _regroup(self, attempt: Attempt, desired: Desired) -> None:
        """Take the place in a later generation of the gang; the program's launcher is told once it is prepared."""
        if attempt.entry.has_ended:
            return
        try:
            if accept_generation(self._context, attempt.entry, desired):
                log.info("The gang changes. lease_id=%s generation=%s", desired.lease_id, attempt.entry.generation)
        except (AssignmentRefused, JournalFailed) as error:
            log.error("A later generation was refused: %s lease_id=%s", error, desired.lease_id)
            self.last_error = str(error)

    async def _forget(self, lease_id: UUID) -> None:
        """Drop a settled lease; one that still runs is stopped first and forgotten at a later beat."""
        attempt = self.attempts.get(lease_id)
        if attempt is None:
            return
        if not attempt.entry.has_ended:
            attempt.request_stop(Reason.LEASE_EXPIRED)
            return
        try:
            await attempt.forget()
        except AgentError as error:
            log.error("A lease could not be removed yet: %s lease_id=%s", error, lease_id)
            return
        del self.attempts[lease_id]

    # --- failures

    def _note_failure(self, error: AgentError) -> None:
        """Log, and raise when the server knows this node no more and nothing is left to look after."""
        log.warning("Sync failed: %s", error)
        self.last_error = str(error)
        self.answered()
        is_refusal = isinstance(error, Refused) and error.status in NODE_GONE_STATUS
        self._refusals = self._refusals + 1 if is_refusal else 0
        is_idle = all(attempt.entry.has_ended for attempt in self.attempts.values())
        if self._refusals >= REFUSALS_MAX and is_idle:
            raise error

    async def _pause(self, seconds: float) -> None:
        """Wait, but not when something changes here."""
        try:
            await asyncio.wait_for(self._context.wake.wait(), seconds)
        except TimeoutError:
            return
