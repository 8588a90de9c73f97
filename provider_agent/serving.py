"""A serving lease's way to the gateways: announced once its runtime is ready, withdrawn when it has ended.

Gateways come with the assignment; later ones the marketplace tells with a sync, signed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import timedelta
from typing import Any

from provider_agent.lease_record import LeaseRecord
from provider_agent.porter import Porter
from provider_agent.protocol import GatewayPlace, ServePlace, SignedGateways, verify_gateways
from runtimes.contract import SERVE_SOCKET, EventKind

LOOK_SECONDS = 0.25
OLD = timedelta(minutes=10)  # a list that was kept back for so long is not taken

log = logging.getLogger(__name__)


async def keep_announced(porter: Porter, record: LeaseRecord) -> None:
    """From the runtime's `ready` to the lease's end. A stop that was asked changes nothing: it drains first."""
    entry = record.entry
    place, tunnels = entry.assignment.serve, porter.tunnels
    if place is None or tunnels is None:
        return
    while (ready := find_ready(record.first_events())) is None:
        if entry.has_ended:
            return
        await asyncio.sleep(LOOK_SECONDS)
    gateways = _newest(porter, place)
    place = place.model_copy(update={"gateways": gateways})
    tunnels.announce(entry.lease_id, place, record.work / SERVE_SOCKET, ready)
    try:
        while not entry.has_ended:  # the lease's own task says so, in the journal
            await asyncio.sleep(LOOK_SECONDS)
            if (newest := _newest(porter, place)) != gateways:
                gateways = newest
                tunnels.lead(entry.lease_id, gateways)
    finally:
        tunnels.withdraw(entry.lease_id)


def _newest(porter: Porter, place: ServePlace) -> list[GatewayPlace]:
    return porter.gateways.gateways if porter.gateways is not None else place.gateways


def hear_gateways(porter: Porter, signed: SignedGateways | None) -> None:
    """Take the marketplace's word for where the replicas here are to be reached, and nobody else's."""
    if signed is None:
        return
    try:
        told = verify_gateways(porter.config.server_public_key, signed)
    except ValueError as error:
        log.error("Gateways were refused: %s", str(error).splitlines()[0])
        return
    if told.node_id != porter.config.node_id:
        log.error("Gateways were refused: they are for another node.")
        return
    if abs(porter.client.server_now() - told.told_at) > OLD:
        log.error("Gateways were refused: they were told at another time.")
        return
    if porter.gateways is None or told.told_at > porter.gateways.told_at:
        porter.gateways = told


def find_ready(events: bytes) -> dict[str, Any] | None:
    """What the first `ready` event among these lines says of the engine; None while there is none."""
    for line in events.splitlines():
        if b'"ready"' not in line:
            continue
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == EventKind.READY:
            return {key: value for key, value in event.items() if key not in {"event", "at"}}
    return None
