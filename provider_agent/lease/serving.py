"""Announces a serving lease to the gateways once its runtime is ready, and withdraws it when it has ended.

The assignment names the gateways; a sync answer may name newer ones, signed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import timedelta
from typing import Any

from provider_agent.context import AgentContext
from provider_agent.lease.record import LeaseRecord
from provider_agent.protocol import GatewayPlace, ServePlace, SignedGateways, verify_gateways
from runtimes.contract import SERVE_SOCKET, EventKind

POLL_SECONDS = 0.25
AGE_MAX = timedelta(minutes=10)  # an older list of gateways is refused: it may have been held back on its way

log = logging.getLogger(__name__)


async def publish_replica(context: AgentContext, record: LeaseRecord) -> None:
    """Keep the replica announced from the runtime's `ready` event to the lease's end; a stop drains it first."""
    entry = record.entry
    place, tunnels = entry.assignment.serve, context.tunnels
    if place is None or tunnels is None:
        raise ValueError("a replica is published for an endpoint, while the agent's tunnels are up")
    while not entry.has_ended and find_ready(record.first_events()) is None:  # noqa: ASYNC110 - polling a file
        await asyncio.sleep(POLL_SECONDS)
    ready = find_ready(record.first_events())
    if entry.has_ended or ready is None:
        return
    gateways = _newest(context, place)
    place = place.model_copy(update={"gateways": gateways})
    tunnels.announce(entry.lease_id, place, record.work / SERVE_SOCKET, ready)
    try:
        while not entry.has_ended:  # the lease's own task sets this
            await asyncio.sleep(POLL_SECONDS)
            if (newest := _newest(context, place)) != gateways:
                gateways = newest
                tunnels.change_gateways(entry.lease_id, gateways)
    finally:
        tunnels.withdraw(entry.lease_id)


def _newest(context: AgentContext, place: ServePlace) -> list[GatewayPlace]:
    return context.gateways.gateways if context.gateways is not None else place.gateways


def accept_gateways(context: AgentContext, signed: SignedGateways | None) -> None:
    """Take the gateways that the marketplace signed for this node, if they are newer; refuse any other list."""
    if signed is None:
        return
    try:
        newest = verify_gateways(context.config.server_public_key, signed)
    except ValueError as error:
        log.error("Gateways were refused: %s", str(error).splitlines()[0])
        return
    if newest.node_id != context.config.node_id:
        log.error("Gateways were refused: they are for another node.")
        return
    if abs(context.client.server_now() - newest.told_at) > AGE_MAX:
        log.error("Gateways were refused: their time is too far from now.")
        return
    if context.gateways is None or newest.told_at > context.gateways.told_at:
        context.gateways = newest


def find_ready(events: bytes) -> dict[str, Any] | None:
    """The engine as the first `ready` event among these lines reports it; None while there is none."""
    for line in events.splitlines():
        if b'"ready"' not in line:
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and event.get("event") == EventKind.READY:
            return {key: value for key, value in event.items() if key not in {"event", "at"}}
    return None
