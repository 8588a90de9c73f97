"""The gateway's own inside: requests are answered by `serving`, through the tunnels of the hub."""

from __future__ import annotations

import asyncio

from jobs.gateway.auditing import Auditor
from jobs.gateway.process import Inside, Parts
from jobs.gateway.serving import Serving
from jobs.gateway.tunnels import TunnelHub


def compose(parts: Parts) -> Inside:
    """A `process.Compose`: who announces what is ruled by the table, who waits for a replica brings a sync."""
    hub = TunnelHub(parts.identity.key, urls=[parts.config.url])
    auditor = Auditor(hub, parts.directory)
    serving = Serving(hub, parts.directory, parts.meter, on_wanted=parts.control.wake, on_answered=auditor.consider)
    auditing = asyncio.get_running_loop().create_task(auditor.run())
    hub.on_change = lambda lease_id: serving.on_change()
    parts.control.take_audits = auditor.take_rows
    parts.control.loads, parts.control.replica_loads = serving.loads, serving.replica_loads
    parts.control.on_table = hub.allow
    parts.metrics.gauges["replicas"] = ("Replicas that can be reached.", lambda: len(hub.announced()))

    async def close() -> None:
        auditing.cancel()
        await serving.close()

    return Inside(serving, hub.accept, close)
