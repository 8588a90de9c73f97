"""Answers the marketplace's demands to probe the link to another node of the fabric, while this node is idle.

A probe is cancelled by a lease, as a device check is. This side's result is kept for `souk-agent status`; the
marketplace decides from the reports of both sides.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from datetime import UTC, datetime
from uuid import UUID

from provider_agent.client import with_retries
from provider_agent.context import AgentContext
from provider_agent.errors import AgentError
from provider_agent.journal import FACT_LINKS, Journal, read_links
from provider_agent.node.fabric_probe import failed, probe
from provider_agent.node.speeds import give_back_memory
from provider_agent.protocol import LinkDemand, LinkReport

LINKS_KEPT_MAX = 64  # peers whose newest probe is remembered

log = logging.getLogger(__name__)


class LinkProbes:
    """At most one probe at a time; each is answered once by this agent."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._probe_id: UUID | None = None

    def accept(self, demand: LinkDemand | None, *, is_idle: bool) -> None:
        """Start, continue or cancel the probe, as the newest sync answer demands."""
        probe_id = demand.probe_id if demand else None
        if probe_id != self._probe_id or not is_idle:
            self.cancel()
        if demand is not None and probe_id != self._probe_id and is_idle:
            self._probe_id = probe_id
            self._task = asyncio.create_task(_answer(self._context, demand), name="link")

    def cancel(self) -> None:
        """End the probe with its sockets."""
        if self._task is not None and not self._task.done():
            log.info("The probe of a link is cancelled. probe_id=%s", self._probe_id)
            self._task.cancel()

    async def close(self) -> None:
        """End the probe before the agent ends."""
        self.cancel()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


async def _answer(context: AgentContext, demand: LinkDemand) -> None:
    """Probe, remember, report; the marketplace asks again if the report cannot be sent."""
    own = context.config.fabric_address
    if demand.address != own:  # nothing but what the provider declared is opened
        why = f"this node was asked to listen on {demand.address}, but its fabric address is {own or 'not set'}"
        report = failed(why)
    else:
        log.info("Probing the link to %s. probe_id=%s", demand.peer_name, demand.probe_id)
        try:
            report = await probe(demand)
        finally:
            give_back_memory()
    try:
        remember_link(context.journal, demand, report)
    except sqlite3.Error as error:  # a full disk; without a report the marketplace would hold the link for broken
        log.warning("The result of a link probe was not kept: %s probe_id=%s", error, demand.probe_id)
    log.log(
        logging.WARNING if report.why else logging.INFO,
        "Link to %s probed: %s",
        demand.peer_name,
        report.why or "reached both ways",
    )
    try:
        await with_retries(lambda: context.client.report_link(demand.probe_id, report))
    except AgentError as error:
        log.warning("The probe of a link could not be reported: %s probe_id=%s", error, demand.probe_id)


def remember_link(journal: Journal, demand: LinkDemand, report: LinkReport) -> None:
    """Keep what was seen of this peer in place of what was seen before."""
    seen = read_links(journal)
    seen.pop(demand.peer_name, None)
    seen[demand.peer_name] = {
        "address": demand.peer_address,
        "at": datetime.now(UTC).isoformat(),
        "is_reached": report.dialled and report.was_dialled,
        "round_trip_us": report.round_trip_us,
        "sent_bytes_per_second": report.sent_bytes_per_second,
        "received_bytes_per_second": report.received_bytes_per_second,
        "why": report.why,
    }
    newest = dict(list(seen.items())[-LINKS_KEPT_MAX:])
    journal.save_fact(FACT_LINKS, json.dumps(newest))
