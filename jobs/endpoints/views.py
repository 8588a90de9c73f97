"""Endpoints as the public API shows them, in a fixed number of queries however many there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings

from jobs.endpoints.publish import short_name
from jobs.endpoints.replicas import GATEWAY_SECONDS_MAX
from jobs.endpoints.versions import spec_of
from jobs.models import Endpoint, EndpointVersion, Gateway, Lease, Replica
from jobs.spec import serve_of
from jobs.states import JOB_ENDS, REPLICA_LIVE, VERSION_ROLLED_BACK, JobState, ReplicaState, VersionState
from jobs.wire import EndpointView, ReplicaView, VersionView
from marketplace.foundation import clock


def list_endpoints(endpoints: Sequence[Endpoint]) -> list[EndpointView]:
    """Endpoints with their versions and their live replicas."""
    replicas, versions = _replicas_of(endpoints), _versions_of(endpoints)
    loads = _loads()
    return [_show(each, versions[each.pk], replicas[each.pk], loads) for each in endpoints]


def _show(
    endpoint: Endpoint, versions: list[EndpointVersion], leases: list[Lease], loads: dict[str, dict[str, Any]]
) -> EndpointView:
    serve = serve_of(spec_of(versions[-1]))
    ready = [lease for lease in leases if lease.attempt.replica.state == ReplicaState.READY]
    load = loads.get(str(endpoint.pk), {})
    return EndpointView(
        endpoint_id=endpoint.pk,
        job_id=endpoint.job_id,
        model=endpoint.model,
        public_model=f"{short_name(endpoint.organisation)}/{endpoint.model}" if serve.is_public else None,
        base_url=f"{settings.SOUK_SERVING_URL}/v1" if settings.SOUK_SERVING_URL else "",
        state=_state_of(endpoint, has_ready=bool(ready)),
        why=endpoint.job.waiting_for or endpoint.job.message or endpoint.desired_why,
        replicas_desired=endpoint.desired,
        replicas_ready=len(ready),
        rate_usd_micros_per_hour=sum(lease.rate_usd_micros_per_hour for lease in leases),
        input_usd_micros_per_million=serve.prices.input_usd_micros,
        output_usd_micros_per_million=serve.prices.output_usd_micros,
        in_flight=int(load.get("in_flight", 0)),
        queued=int(load.get("queued", 0)),
        created_at=endpoint.created_at,
        versions=[
            VersionView(
                number=each.number,
                state=VersionState.ROLLED_BACK if each.state in VERSION_ROLLED_BACK else each.state,
                share=each.share,
                reason=each.reason,
                created_at=each.created_at,
            )
            for each in versions
        ],
        replicas=[_show_replica(lease, loads.get(str(lease.pk), {})) for lease in leases],
    )


def _state_of(endpoint: Endpoint, *, has_ready: bool) -> str:
    if not endpoint.is_open or endpoint.job.state in JOB_ENDS:
        return "closed"
    if endpoint.job.state == JobState.PAUSED:
        return "paused"
    if has_ready:
        return "ready"
    # Also before its job ever ran: a start may take longer than it stays awake unasked.
    return "asleep" if endpoint.desired == 0 else "starting"


def _show_replica(lease: Lease, load: dict[str, Any]) -> ReplicaView:
    replica = lease.attempt.replica
    return ReplicaView(
        replica_id=replica.pk,
        lease_id=lease.pk,
        attempt=lease.attempt.number,
        version=replica.version.number,
        state=replica.state,
        reason=replica.reason,
        node_id=lease.node_id,
        node_name=lease.node.name,
        region=lease.offer.region or lease.node.region,
        device_model=" + ".join(sorted({device.model for device in lease.devices.all()})),
        rate_usd_micros_per_hour=lease.rate_usd_micros_per_hour,
        engine=str(replica.facts.get("engine") or ""),
        in_flight=int(load.get("in_flight", 0)),
        tokens_per_second=load.get("tokens_per_second"),
        created_at=replica.created_at,
        ready_at=replica.ready_at,
    )


def _replicas_of(endpoints: Sequence[Endpoint]) -> defaultdict[UUID, list[Lease]]:
    found: defaultdict[UUID, list[Lease]] = defaultdict(list)
    live = Replica.objects.filter(endpoint__in=endpoints, state__in=REPLICA_LIVE)
    leases = Lease.objects.live().filter(attempt__replica__in=live)
    for lease in (
        leases.select_related("node", "offer", "attempt__replica__version")
        .prefetch_related("devices")
        .order_by("attempt__number")
    ):
        found[lease.attempt.replica.endpoint_id].append(lease)
    return found


def _versions_of(endpoints: Sequence[Endpoint]) -> defaultdict[UUID, list[EndpointVersion]]:
    found: defaultdict[UUID, list[EndpointVersion]] = defaultdict(list)
    for version in EndpointVersion.objects.filter(endpoint__in=endpoints).order_by("number"):
        found[version.endpoint_id].append(version)
    return found


def _loads() -> dict[str, dict[str, Any]]:
    """The gateways' reports, added up: by endpoint id, and by lease id."""
    added: dict[str, dict[str, Any]] = {}
    fresh = clock.now() - timedelta(seconds=GATEWAY_SECONDS_MAX)
    for loads in Gateway.objects.filter(seen_at__gt=fresh).values_list("loads", flat=True):
        for rows in loads.values():
            for key, load in rows.items():
                before = added.setdefault(key, {"in_flight": 0, "queued": 0, "tokens_per_second": None})
                before["in_flight"] += int(load.get("in_flight", 0))
                before["queued"] += int(load.get("queued", 0))
                before["tokens_per_second"] = load.get("tokens_per_second") or before["tokens_per_second"]
    return added
