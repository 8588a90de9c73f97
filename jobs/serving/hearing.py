"""Take in what a gateway says: where it is, what load it sees, which replicas it reaches."""

from __future__ import annotations

from django.db import transaction

from jobs.gateway.table import GatewaySync
from jobs.models import Endpoint, Gateway
from jobs.serving import minutes, replicas
from marketplace.foundation import clock


def take_in(said: GatewaySync) -> Gateway:
    """The gateway as it is now; harmless to repeat, the newest word counts."""
    now = clock.now()
    loads = {
        "endpoints": {
            str(load.endpoint_id): load.model_dump(mode="json", exclude={"endpoint_id"}) for load in said.loads
        },
        "replicas": {str(load.lease_id): load.model_dump(mode="json", exclude={"lease_id"}) for load in said.replicas},
    }
    with transaction.atomic():
        gateway, _ = Gateway.objects.update_or_create(
            id=said.gateway_id,
            defaults={
                "boot_id": said.boot_id,
                "url": said.url,
                "public_key": said.public_key,
                "loads": loads,
                "seen_at": now,
            },
        )
    asked = [load.endpoint_id for load in said.loads if load.arrived or load.in_flight or load.queued]
    Endpoint.objects.filter(pk__in=asked).update(wanted_at=now)
    minutes.add_requests(
        {
            load.endpoint_id: (load.arrived, max(load.arrived - load.failed - load.refused, 0), load.failed)
            for load in said.loads
            if load.arrived
        }
    )
    replicas.hear(gateway, {load.lease_id: load.model_dump(mode="json") for load in said.replicas})
    return gateway
