"""A serving lease's way to the gateways: announced once its runtime is ready, withdrawn when it has ended."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from provider_agent.lease_record import LeaseRecord
from provider_agent.porter import Porter
from runtimes.contract import SERVE_SOCKET, EventKind

LOOK_SECONDS = 0.25


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
    tunnels.announce(entry.lease_id, place, record.work / SERVE_SOCKET, ready)
    try:
        while not entry.has_ended:  # noqa: ASYNC110 - the lease's own task says so, in the journal
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        tunnels.withdraw(entry.lease_id)


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
