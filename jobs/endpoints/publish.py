"""The table that gateways get: every open endpoint and every live replica, with a version."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from uuid import UUID

from django.utils.text import slugify

from jobs.endpoints.versions import spec_of
from jobs.gateway.messages import EndpointLimits, EndpointRow, ReplicaRow, Table, VersionRow
from jobs.models import Endpoint, EndpointVersion, Lease
from jobs.spec import Spec, serve_of
from jobs.states import REPLICA_LIVE, JobState, ReplicaState, VersionState
from marketplace.accounts.models import Organisation
from marketplace.foundation.exclusive import log_failures

MIB = 1 << 20
NAME_CHARACTERS_MAX, ID_CHARACTERS = 40, 6
CLOSED = {
    JobState.PAUSED: "The endpoint is paused: its budget is used up.",
    JobState.FAILED: "The endpoint has failed.",
}


def table_now() -> tuple[str, Table]:
    """The table and its version, which changes only when it does."""
    table = Table(endpoints=_endpoints(), replicas=list(_replicas()))
    return hashlib.sha256(table.model_dump_json().encode()).hexdigest()[:32], table


def short_name(organisation: Organisation) -> str:
    """The organisation's part in the names of its public models: names are not unique, so the end of its id follows."""
    return f"{slugify(organisation.name)[:NAME_CHARACTERS_MAX] or 'org'}-{organisation.pk.hex[-ID_CHARACTERS:]}"


def _endpoints() -> list[EndpointRow]:
    rows = []
    serving: defaultdict[UUID, list[EndpointVersion]] = defaultdict(list)
    current = EndpointVersion.objects.filter(
        endpoint__is_open=True, state__in=[VersionState.STARTING, VersionState.LIVE]
    )
    for version in current.order_by("endpoint_id", "number"):
        serving[version.endpoint_id].append(version)
    for endpoint in Endpoint.objects.filter(is_open=True).select_related("job", "organisation").order_by("id"):
        versions = serving[endpoint.pk]
        if not versions:
            continue
        shared = [version for version in versions if version.share] or versions
        shares = [VersionRow(version=each.number, share=each.share) for each in shared]
        with log_failures(
            "An endpoint could not be published to gateways.", endpoint_id=str(endpoint.pk)
        ):  # the others are
            rows.append(_row(endpoint, spec_of(shared[0]), shares))
    return rows


def _row(endpoint: Endpoint, spec: Spec, versions: list[VersionRow]) -> EndpointRow:
    serve = serve_of(spec)
    return EndpointRow(
        endpoint_id=endpoint.pk,
        job_id=endpoint.job_id,
        organisation_id=endpoint.organisation_id,
        organisation=short_name(endpoint.organisation),
        model=endpoint.model,
        task="embed" if serve.engine == "embed" else "generate",
        is_public=serve.is_public,
        versions=versions,
        limits=EndpointLimits(
            context=serve.limits.context,
            max_tokens=serve.limits.max_tokens,
            body_bytes=serve.limits.body_mib * MIB,
            request_seconds=serve.limits.request_seconds,
            wake_seconds=serve.scale.wake_seconds,
            in_flight=serve.scale.in_flight,
        ),
        input_usd_micros_per_million=serve.prices.input_usd_micros or 0,
        output_usd_micros_per_million=serve.prices.output_usd_micros or 0,
        verify_share=serve.verify_share,
        created_at=int(endpoint.created_at.timestamp()),
        closed=CLOSED.get(JobState(endpoint.job.state), ""),
    )


def _replicas() -> Iterable[ReplicaRow]:
    live = Lease.objects.live().filter(attempt__replica__state__in=REPLICA_LIVE)
    for lease in live.select_related("node", "attempt__replica__version").order_by("id"):
        replica = lease.attempt.replica
        # A lease that has a stop reason gets no new requests, whatever its replica's state is yet.
        state = ReplicaState.DRAINING if lease.stop_reason else ReplicaState(replica.state)
        yield ReplicaRow(
            lease_id=lease.pk,
            attempt_id=lease.attempt_id,
            endpoint_id=replica.endpoint_id,
            version=replica.version.number,
            node_id=lease.node_id,
            node_key=lease.node.transport_public_key,
            provider_id=lease.node.provider_id,
            # Gateways find out by themselves whether it is ready: if we published it, their own report would come back.
            state="draining" if state == ReplicaState.DRAINING else "ready",
            usd_micros_per_hour=lease.rate_usd_micros_per_hour,
        )
