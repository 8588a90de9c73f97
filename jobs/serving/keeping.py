"""Keep every endpoint as it should be: place what is missing, drain what is too much, heal the rest.

Run each second or two, and at once when a gateway says that somebody waits. It may run twice or never: it looks at what
is, decides, and lets verbs decide again under the job's lock.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.conf import settings

from jobs import lifecycle
from jobs.models import Endpoint, EndpointVersion, Lease, Replica
from jobs.serving import autoscaling, minutes, placing, replicas, rollout, seeing, stepping
from jobs.serving.gateways import live_gateways
from jobs.states import REPLICA_LIVE, JobState, ReplicaState, VersionState
from marketplace.foundation import clock
from marketplace.foundation.exclusive import unless_raced
from marketplace.foundation.states import advance
from provider_agent.protocol import Reason

log = logging.getLogger(__name__)

ENDPOINTS_MAX = 1000  # looked at in one tick
TOLD_SECONDS = 2  # by then every gateway has heard that a replica drains
REASON_CHARACTERS_MAX = 64
SERVED_STATES = (JobState.QUEUED, JobState.PLACED, JobState.RUNNING, JobState.RECOVERING)


def keep_endpoints() -> int:
    """One tick over all open endpoints; returns how many replicas were placed or drained."""
    changed = replicas.lose_unreached() + _drain_ended_versions()
    open_ones = Endpoint.objects.filter(is_open=True, job__state__in=SERVED_STATES, job__cancel_requested_at=None)
    drawn = open_ones.select_related("job__quote__asset", "job__organisation").order_by("?")  # beyond the most, by lot
    for endpoint in drawn[:ENDPOINTS_MAX]:
        with unless_raced("An endpoint could not be kept.", endpoint_id=str(endpoint.pk)):
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
    told = clock.now() - timedelta(seconds=TOLD_SECONDS)
    done = [
        lease
        for replica, lease in lease_of.items()
        if replica.draining_at is not None
        and replica.draining_at < told
        and (not busy[lease.pk] or replica.draining_at < late)
    ]
    lifecycle.stop_leases(done, Reason.REPLICA_RETIRED)
    return len(done)


def _drain_ended_versions() -> int:
    """Replicas of versions that were retired or taken back answer nothing new."""
    ended = Replica.objects.filter(
        state__in=REPLICA_LIVE - {ReplicaState.DRAINING},
        version__state__in=[VersionState.RETIRED, VersionState.TAKEN_BACK],
        endpoint__is_open=True,
    )
    count = 0
    for replica in ended[:ENDPOINTS_MAX]:
        with unless_raced("A replica could not be drained.", replica_id=str(replica.pk)):
            replicas.drain(replica, reason="version_ended")
            count += 1
    return count


def _keep(endpoint: Endpoint) -> int:
    if not live_gateways():
        placing.say_why(endpoint, "No gateway is up: start one with `souk gateway`.")
        return 0
    now = clock.now()
    seen = seeing.look(endpoint, now)
    if seen is None:
        return 0
    # 1. How many replicas, of all versions together.
    wanted = autoscaling.decide(now, seen.policy, seen.view, seen.history)
    # 2. How many of which version, with which share of the requests.
    plan = rollout.decide(
        seen.policy.rollout, wanted.desired, seeing.version_views(seen, now), take_back=endpoint.take_back
    )
    desired = max(wanted.desired, sum(each.desired for each in plan.versions if each.share))
    _note(seen, wanted, plan.why)
    minutes.add_tick(
        endpoint, load=wanted.load, in_flight=seen.view.in_flight, need=wanted.need, desired=wanted.desired
    )
    # 3. Who is started, and who goes.
    plans = {each.number: each for each in plan.versions}
    changed, lacking = 0, 0
    for version in sorted(seen.versions, key=lambda version: -plans[version.number].share):  # who answers comes first
        _turn(version, plans[version.number], plan.why)
        wished = min(plans[version.number].desired, max(desired, 1))
        steps = stepping.step(wished, seen.policy, seen.view_of(version), seen.leaving(version))
        changed += _step(seen, version, steps)
        lacking += steps.start
    if not lacking:
        placing.say_why(endpoint, "")
    return changed


def _turn(version: EndpointVersion, plan: rollout.VersionPlan, why: str) -> None:
    """Give a version its state and its share."""
    now = clock.now()
    changes: dict[str, Any] = {}
    if plan.share != version.share:
        changes = {"share": plan.share, "stepped_at": now}
    if plan.state != version.state:
        if plan.state in {"retired", "taken_back"}:
            changes["ended_at"] = now
        advance(version, VersionState(plan.state), reason=why[:REASON_CHARACTERS_MAX], **changes)
        if plan.state == "taken_back":
            Endpoint.objects.filter(pk=version.endpoint_id).update(take_back=False)
    elif changes:
        EndpointVersion.objects.filter(pk=version.pk).update(**changes)


def _step(seen: seeing.Seen, version: EndpointVersion, steps: stepping.Steps) -> int:
    """Start what a version lacks, and let go of what it has too much or that is not sound."""
    mine = {lease.attempt.replica.pk: lease.attempt.replica for lease in seen.leases}
    changed = placing.place_replicas(seen.endpoint, version, steps.start, placed=seen.placed)
    if steps.start_on_demand:
        changed += placing.place_replicas(
            seen.endpoint, version, steps.start_on_demand, placed=seen.placed, only_on_demand=True
        )
    for replica_id in steps.drain:
        with unless_raced("A replica could not be drained.", replica_id=str(replica_id)):
            replicas.drain(mine[replica_id], reason="replaced" if replica_id in seen.unsound else "scaled_down")
            changed += 1
    return changed


def _note(seen: seeing.Seen, wanted: autoscaling.Decision, why: str) -> None:
    """What was decided, for people; written where it changed."""
    words = f"{wanted.why} {why}".strip()[: autoscaling.WHY_CHARACTERS_MAX]
    if (seen.endpoint.desired, seen.endpoint.desired_why) != (wanted.desired, words):
        Endpoint.objects.filter(pk=seen.endpoint.pk).update(desired=wanted.desired, desired_why=words)
