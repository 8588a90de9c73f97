"""Reconcile every endpoint with its desired state: place missing replicas, drain surplus ones, replace bad ones.

Run each second or two, and at once when a gateway reports that somebody waits. It may run twice or never: it looks at
what is, decides, and lets verbs decide again under the job's lock.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.conf import settings

from jobs import lifecycle
from jobs.endpoints import minutes, replicas
from jobs.endpoints.gateways import live_gateways
from jobs.models import Endpoint, EndpointVersion, Lease, Replica
from jobs.scaling import autoscaling, rollout, step_plan
from jobs.serving import observe, replica_placement
from jobs.states import REPLICA_LIVE, VERSION_ROLLED_BACK, JobState, ReplicaState, VersionState
from marketplace.foundation import clock
from marketplace.foundation.exclusive import unless_raced
from marketplace.foundation.states import advance
from provider_agent.protocol import Reason

log = logging.getLogger(__name__)

ENDPOINTS_MAX = 1000  # looked at in one tick
PUBLISH_SECONDS = 2  # by then every gateway knows that a replica drains
REASON_CHARACTERS_MAX = 64
SERVED_STATES = (JobState.QUEUED, JobState.PLACED, JobState.RUNNING, JobState.RECOVERING)


def reconcile_endpoints() -> int:
    """One tick over all open endpoints; returns how many replicas were placed or drained."""
    changed = replicas.lose_unreached() + _drain_ended_versions()
    open_ones = Endpoint.objects.filter(is_open=True, job__state__in=SERVED_STATES, job__cancel_requested_at=None)
    drawn = open_ones.select_related("job__quote__asset", "job__organisation").order_by("?")  # beyond the most, by lot
    for endpoint in drawn[:ENDPOINTS_MAX]:
        with unless_raced("An endpoint could not be reconciled.", endpoint_id=str(endpoint.pk)):
            changed += _reconcile(endpoint)
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
    published = clock.now() - timedelta(seconds=PUBLISH_SECONDS)
    done = [
        lease
        for replica, lease in lease_of.items()
        if replica.draining_at is not None
        and replica.draining_at < published
        and (not busy[lease.pk] or replica.draining_at < late)
    ]
    lifecycle.stop_leases(done, Reason.REPLICA_RETIRED)
    return len(done)


def _drain_ended_versions() -> int:
    """Replicas of versions that were retired or rolled back answer nothing new."""
    ended = Replica.objects.filter(
        state__in=REPLICA_LIVE - {ReplicaState.DRAINING},
        version__state__in=[VersionState.RETIRED, *VERSION_ROLLED_BACK],
        endpoint__is_open=True,
    )
    count = 0
    for replica in ended[:ENDPOINTS_MAX]:
        with unless_raced("A replica could not be drained.", replica_id=str(replica.pk)):
            replicas.drain(replica, reason="version_ended")
            count += 1
    return count


def _reconcile(endpoint: Endpoint) -> int:
    if not live_gateways():
        replica_placement.show_reason(endpoint, "No gateway is up: start one with `souk gateway`.")
        return 0
    now = clock.now()
    observed = observe.observe_endpoint(endpoint, now)
    if observed is None:
        return 0
    # 1. How many replicas, over all versions.
    wanted = autoscaling.decide(now, observed.policy, observed.view, observed.history)
    # 2. How many of which version, with which share of the requests.
    plan = rollout.decide(
        observed.policy.rollout,
        wanted.desired,
        observe.version_views(observed, now),
        is_rollback_requested=endpoint.is_rollback_requested,
    )
    desired = max(wanted.desired, sum(each.desired for each in plan.versions if each.share))
    _record_decision(observed, wanted, plan.why)
    minutes.add_tick(
        endpoint, load=wanted.load, in_flight=observed.view.in_flight, need=wanted.need, desired=wanted.desired
    )
    # 3. Who is started, and who goes.
    plans = {each.number: each for each in plan.versions}
    changed, lacking = 0, 0
    # The version with the largest share comes first.
    for version in sorted(observed.versions, key=lambda version: -plans[version.number].share):
        _apply_version_plan(version, plans[version.number], plan.why)
        version_desired = min(plans[version.number].desired, max(desired, 1))
        steps = step_plan.plan_steps(
            version_desired, observed.policy, observed.view_of(version), observed.leaving(version)
        )
        changed += _apply_steps(observed, version, steps)
        lacking += steps.start
    if not lacking:
        replica_placement.show_reason(endpoint, "")
    return changed


def _apply_version_plan(version: EndpointVersion, plan: rollout.VersionPlan, why: str) -> None:
    """Give a version its state and its share."""
    now = clock.now()
    changes: dict[str, Any] = {}
    if plan.share != version.share:
        changes = {"share": plan.share, "stepped_at": now}
    if plan.state != version.state:
        if plan.state in {"retired", "rolled_back"}:
            changes["ended_at"] = now
        advance(version, VersionState(plan.state), reason=why[:REASON_CHARACTERS_MAX], **changes)
        if plan.state == "rolled_back":
            Endpoint.objects.filter(pk=version.endpoint_id).update(is_rollback_requested=False)
    elif changes:
        EndpointVersion.objects.filter(pk=version.pk).update(**changes)


def _apply_steps(observed: observe.Observation, version: EndpointVersion, steps: step_plan.StepPlan) -> int:
    """Start what a version lacks, and let go of what it has too much or that is not sound."""
    mine = {lease.attempt.replica.pk: lease.attempt.replica for lease in observed.leases}
    changed = replica_placement.place_replicas(observed.endpoint, version, steps.start, placed=observed.placed)
    if steps.start_on_demand:
        changed += replica_placement.place_replicas(
            observed.endpoint, version, steps.start_on_demand, placed=observed.placed, only_on_demand=True
        )
    for replica_id in steps.drain:
        with unless_raced("A replica could not be drained.", replica_id=str(replica_id)):
            replicas.drain(mine[replica_id], reason="replaced" if replica_id in observed.unsound else "scaled_down")
            changed += 1
    return changed


def _record_decision(observed: observe.Observation, wanted: autoscaling.Decision, why: str) -> None:
    """What was decided, for people; written where it changed."""
    words = f"{wanted.why} {why}".strip()[: autoscaling.WHY_CHARACTERS_MAX]
    if (observed.endpoint.desired, observed.endpoint.desired_why) != (wanted.desired, words):
        Endpoint.objects.filter(pk=observed.endpoint.pk).update(desired=wanted.desired, desired_why=words)
