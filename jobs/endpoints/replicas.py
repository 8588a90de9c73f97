"""A replica's life: it begins with its attempt, is ready while a gateway reaches it, drains, and is gone with that.

Only gateways' reports make a replica ready, or starting again; `seen_at` is the last moment at which one reported it as
ready, and so far the customer pays where its provider broke it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from jobs.endpoints import minutes
from jobs.models import Attempt, EndpointVersion, Gateway, Lease, Replica
from jobs.states import REPLICA_LIVE, ReplicaState
from marketplace.foundation import clock
from marketplace.foundation.exclusive import unless_raced
from marketplace.foundation.states import advance, record_birth

GATEWAY_SECONDS_MAX = 15  # a gateway that has not reported for so long is ignored
UNREACHED_SECONDS_MAX = 10  # a ready replica that no gateway reaches for so long is ready no more


def begin(attempt: Attempt, version: EndpointVersion, *, is_on_demand: bool) -> Replica:
    """The replica of a new attempt. In the transaction that makes the attempt."""
    replica = Replica.objects.create(
        endpoint_id=version.endpoint_id, version=version, attempt=attempt, is_on_demand=is_on_demand
    )
    record_birth(replica, data={"endpoint": str(version.endpoint_id), "version": version.number, "slot": attempt.slot})
    return replica


def ingest_loads(gateway: Gateway, loads: Mapping[UUID, Mapping[str, Any]]) -> None:
    """Apply one gateway's report of its replicas, by lease id: which are ready, and their load."""
    now = clock.now()
    leases = Lease.objects.live().filter(pk__in=list(loads), attempt__replica__isnull=False)
    lease_of = dict(leases.values_list("attempt__replica__pk", "pk"))
    minutes.add_samples({pk: loads[lease_id] for pk, lease_id in lease_of.items()})
    ready = [pk for pk, lease_id in lease_of.items() if loads[lease_id].get("is_ready")]
    Replica.objects.filter(pk__in=ready, state__in=REPLICA_LIVE).update(seen_at=now)
    for replica in Replica.objects.filter(pk__in=ready, state=ReplicaState.STARTING).select_related("attempt"):
        with unless_raced("A replica could not be made ready.", replica_id=str(replica.pk)):
            facts = {key: loads[lease_of[replica.pk]].get(key) for key in ("capabilities", "context", "engine")}
            advance(replica, ReplicaState.READY, ready_at=replica.ready_at or now, facts=facts)


def lose_unreached() -> int:
    """Ready replicas that no gateway reaches any more are starting again, while there are gateways that report."""
    now = clock.now()
    if not Gateway.objects.filter(seen_at__gt=now - timedelta(seconds=GATEWAY_SECONDS_MAX)).exists():
        return 0
    late = Replica.objects.filter(state=ReplicaState.READY, seen_at__lt=now - timedelta(seconds=UNREACHED_SECONDS_MAX))
    count = 0
    for replica in late:
        with unless_raced("An unreached replica could not be marked as starting.", replica_id=str(replica.pk)):
            advance(replica, ReplicaState.STARTING, reason="unreached")
            count += 1
    return count


def drain(replica: Replica, *, reason: str, actor: str = "system") -> Replica:
    """No new requests; once it has none left it is stopped."""
    return advance(replica, ReplicaState.DRAINING, reason=reason, actor=actor, draining_at=clock.now())


def gone(attempt: Attempt, *, reason: str) -> Replica | None:
    """The replica of an attempt that ended. In the transaction that ends the attempt."""
    replica = Replica.objects.filter(attempt=attempt).first()
    if replica is None or replica.state == ReplicaState.GONE:
        return replica
    with transaction.atomic():
        return advance(replica, ReplicaState.GONE, reason=reason, ended_at=clock.now())


def seen_ms(lease: Lease) -> int | None:
    """How long a serving lease was seen to answer, in milliseconds; None for a lease that serves nothing.

    Where every gateway fell silent the fault is ours: then it is all that was observed.
    """
    replica = Replica.objects.filter(attempt_id=lease.attempt_id).first()
    if replica is None:
        return None
    if lease.running_at is None or replica.seen_at is None:
        return 0
    reported_until = Gateway.objects.order_by("-seen_at").values_list("seen_at", flat=True).first()
    if reported_until is None or reported_until <= replica.seen_at + timedelta(seconds=UNREACHED_SECONDS_MAX):
        return lease.observed_ms
    return max(0, (replica.seen_at - lease.running_at) // timedelta(milliseconds=1))


def in_flight(lease_ids: Collection[UUID]) -> dict[UUID, int]:
    """Requests that each of these leases has now, over all gateways that report."""
    wanted = {str(lease_id): lease_id for lease_id in lease_ids}
    counts = dict.fromkeys(wanted.values(), 0)
    fresh = clock.now() - timedelta(seconds=GATEWAY_SECONDS_MAX)
    for loads in Gateway.objects.filter(seen_at__gt=fresh).values_list("loads", flat=True):
        for lease_id, load in (loads.get("replicas") or {}).items():
            if lease_id in wanted:
                counts[wanted[lease_id]] += int(load.get("in_flight", 0))
    return counts
