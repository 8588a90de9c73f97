"""Keep every endpoint as it should be: place what is missing, drain what is too much, heal the rest.

Run each second or two, and at once when a gateway says that somebody waits. It may run twice or never: it looks at what
is, decides, and lets verbs decide again under the job's lock.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings

from jobs import lifecycle
from jobs.models import Endpoint, Lease, Replica
from jobs.serving import placing, replicas
from jobs.serving.endpoints import spec_of
from jobs.serving.gateways import live_gateways
from jobs.states import REPLICA_LIVE, JobState, ReplicaState, VersionState
from marketplace.foundation import clock
from marketplace.foundation.exclusive import alone
from marketplace.foundation.states import advance
from provider_agent.protocol import Reason

log = logging.getLogger(__name__)

ENDPOINTS_MAX = 1000  # looked at in one tick
SERVED_STATES = (JobState.QUEUED, JobState.PLACED, JobState.RUNNING, JobState.RECOVERING)


def keep_endpoints() -> int:
    """One tick over all open endpoints; returns how many replicas were placed or drained."""
    changed = replicas.lose_unreached()
    open_ones = Endpoint.objects.filter(is_open=True, job__state__in=SERVED_STATES, job__cancel_requested_at=None)
    for endpoint in open_ones.select_related("job__quote__asset", "job__organisation")[:ENDPOINTS_MAX]:
        with alone("An endpoint could not be kept.", endpoint_id=str(endpoint.pk)):
            changed += _keep(endpoint)
    return changed + stop_drained()


def stop_drained() -> int:
    """Stop the leases of draining replicas that have no request left, or had time enough."""
    draining = Replica.objects.filter(state=ReplicaState.DRAINING).select_related("attempt")
    lease_of = {
        replica: lease
        for replica in draining
        if (lease := Lease.objects.live().filter(attempt=replica.attempt, stop_reason="").first()) is not None
    }
    busy = replicas.in_flight([lease.pk for lease in lease_of.values()])
    late = clock.now() - timedelta(seconds=settings.SOUK_DRAIN_SECONDS)
    told = clock.now() - timedelta(seconds=2)  # every gateway has heard of it by then
    done = [
        lease
        for replica, lease in lease_of.items()
        if replica.draining_at is not None
        and replica.draining_at < told
        and (not busy[lease.pk] or replica.draining_at < late)
    ]
    lifecycle.stop_leases(done, Reason.REPLICA_RETIRED)
    return len(done)


def _keep(endpoint: Endpoint) -> int:
    if not live_gateways():
        placing.say_why(endpoint, "No gateway is up: start one with `souk gateway`.")
        return 0
    version = endpoint.versions.filter(state__in=[VersionState.STARTING, VersionState.LIVE]).latest("number")
    serve = spec_of(version).serve
    assert serve is not None  # noqa: S101 - an endpoint's versions serve
    living = Replica.objects.filter(endpoint=endpoint, state__in=REPLICA_LIVE)
    if version.state == VersionState.STARTING and living.filter(version=version, state=ReplicaState.READY).exists():
        advance(version, VersionState.LIVE)
    present = living.exclude(state=ReplicaState.DRAINING).count()
    desired = max(serve.replicas.min, min(1, serve.replicas.max))
    Endpoint.objects.filter(pk=endpoint.pk).exclude(desired=desired).update(desired=desired)
    return placing.place_replicas(endpoint, version, desired - present)
