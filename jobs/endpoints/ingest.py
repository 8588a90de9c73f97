"""Store what a gateway reports: its address, its load, the replicas that it reaches."""

from __future__ import annotations

from django.db import transaction

from jobs.endpoints import minutes, replicas
from jobs.gateway.messages import GatewaySync
from jobs.models import Endpoint, Gateway
from marketplace.foundation import clock


def ingest_sync(sync: GatewaySync) -> Gateway:
    """The gateway's row with this report; harmless to repeat, the newest report counts."""
    now = clock.now()
    loads = {
        "endpoints": {
            str(load.endpoint_id): load.model_dump(mode="json", exclude={"endpoint_id"}) for load in sync.loads
        },
        "replicas": {str(load.lease_id): load.model_dump(mode="json", exclude={"lease_id"}) for load in sync.replicas},
    }
    with transaction.atomic():
        gateway, _ = Gateway.objects.update_or_create(
            id=sync.gateway_id,
            defaults={
                "boot_id": sync.boot_id,
                "url": sync.url,
                "public_key": sync.public_key,
                "loads": loads,
                "seen_at": now,
            },
        )
    wanted = [load.endpoint_id for load in sync.loads if load.arrived or load.in_flight or load.queued]
    Endpoint.objects.filter(pk__in=wanted).update(wanted_at=now)
    minutes.add_requests(
        {
            load.endpoint_id: (load.arrived, max(load.arrived - load.failed - load.refused, 0), load.failed)
            for load in sync.loads
            if load.arrived
        }
    )
    replicas.ingest_loads(gateway, {load.lease_id: load.model_dump(mode="json") for load in sync.replicas})
    return gateway
