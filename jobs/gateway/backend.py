"""What answers a gateway's requests: `Serving`, through the tunnels of the hub."""

from __future__ import annotations

import asyncio

from jobs.gateway.accounting.auditing import Auditor
from jobs.gateway.answering.serving import Serving
from jobs.gateway.process import Backend, Parts
from jobs.gateway.tunnels import TunnelHub


def compose(parts: Parts) -> Backend:
    """A `process.Compose`. The table rules who may announce what; a waiting request triggers a sync."""
    hub = TunnelHub(parts.identity.key, urls=[parts.config.url], trusted=parts.config.proxies)
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

    return Backend(serving, hub.accept, close)
