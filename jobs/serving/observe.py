"""An endpoint as it is now, as input of the deciders: from rows and the gateways' newest reports to plain views."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from jobs.endpoints import minutes
from jobs.endpoints.replicas import GATEWAY_SECONDS_MAX
from jobs.endpoints.versions import spec_of
from jobs.models import Endpoint, EndpointVersion, Gateway, Lease, Replica
from jobs.scaling import cold_start, forecast, spreading
from jobs.scaling.autoscaling import EndpointView, History, ReplicaView
from jobs.scaling.rollout import VersionView
from jobs.spec.kinds.serve import ServeSection, serve_of
from jobs.states import REPLICA_LIVE, ReplicaState, VersionState
from marketplace.nodes.offering import schedule
from marketplace.nodes.states import NodeState
from provider_agent.protocol import Reason, payable_ms

MIB: Final = 1 << 20
STARTS_READ: Final = cold_start.STARTS_MAX
WEIGHTS_MIB_UNKNOWN: Final = 2048.0
LEAVING_SECONDS: Final = 900  # before its hours end a node's replica is replaced
ROTATE_SECONDS: Final = 600  # and one before its lease reaches its cap
SAYS_NOTHING: Final = frozenset(  # about a version: a start that ended so was stopped by us, or its node left
    {
        Reason.REPLICA_RETIRED,
        Reason.CANCELLED_BY_CUSTOMER,
        Reason.CANCELLED_BY_OPERATOR,
        Reason.DEADLINE_EXCEEDED,
        Reason.BUDGET_EXHAUSTED,
        Reason.NODE_SILENT,
        Reason.NODE_DRAINED,
        Reason.NODE_QUARANTINED,
        Reason.LEASE_EXPIRED,
    }
)


@dataclass(frozen=True)
class Observation:
    """One endpoint at one moment."""

    endpoint: Endpoint
    versions: list[EndpointVersion]  # that have not ended, oldest first
    policy: ServeSection  # of the newest
    leases: list[Lease]  # of live replicas
    view: EndpointView
    history: History
    placed: list[spreading.Placed]
    unsound: dict[UUID, str] = field(default_factory=dict)  # replica -> why, for people

    def view_of(self, version: EndpointVersion) -> EndpointView:
        """The same with one version's replicas."""
        mine = {lease.attempt.replica.pk for lease in self.leases if lease.attempt.replica.version_id == version.pk}
        shown = [replica for replica in self.view.replicas if replica.id in mine]
        fields = {name: getattr(self.view, name) for name in EndpointView.__dataclass_fields__}
        return EndpointView(**{**fields, "replicas": shown})

    def leaving(self, version: EndpointVersion) -> list[UUID]:
        """Who of a version's replicas goes first."""
        mine = {replica.id for replica in self.view_of(version).replicas}
        return spreading.leaving_order([each for each in self.placed if each.id in mine], requirements_of(self.policy))


def observe_endpoint(endpoint: Endpoint, now: datetime) -> Observation | None:
    """The endpoint's replicas, load and history; None where every version has ended."""
    current = [VersionState.STARTING, VersionState.LIVE]
    versions = list(endpoint.versions.filter(state__in=current).order_by("number"))
    if not versions:
        return None
    policy = serve_of(spec_of(versions[-1]))
    leases = _leases(endpoint)
    load = _load(endpoint, now)
    samples = minutes.read_samples([lease.attempt.replica for lease in leases], now)
    unsound = {each.id: each.why for each in spreading.outliers([_sample(lease, samples) for lease in leases])}
    unsound = {**_leaving(leases, now), **unsound}
    start = predict_start(endpoint, versions[-1], now)
    asked = endpoint.wanted_at or endpoint.created_at
    view = EndpointView(
        replicas=[_replica(lease.attempt.replica, now, unsound) for lease in leases],
        in_flight=load["in_flight"],
        queued=load["queued"],
        queue_seconds=load["queue_seconds_max"],
        is_wanted=load["is_wanted"],
        idle_seconds=(now - asked).total_seconds(),
        cold_start_seconds=start.surely_seconds,
    )
    horizon = forecast.horizon_of(start.surely_seconds)
    rows = minutes.read_minutes(endpoint, now, horizon_minutes=horizon)
    history = History(rows, forecast.predict(minutes.minute_of(now), horizon, rows))
    placed = [_placed(lease, now, unsound, samples) for lease in leases]
    return Observation(endpoint, versions, policy, leases, view, history, placed, unsound)


def requirements_of(policy: ServeSection, *, only_on_demand: bool = False) -> spreading.Requirements:
    """What a place for one of its replicas must be."""
    return spreading.Requirements(
        spread=policy.spread,
        on_demand_min=policy.scale.on_demand_min,
        streams=policy.scale.in_flight,
        only_on_demand=only_on_demand,
    )


def version_views(observed: Observation, now: datetime) -> list[VersionView]:
    """The versions side by side, since the newest was deployed."""
    sums = minutes.read_versions(observed.versions, observed.versions[-1].created_at)
    return [_version(version, sums.get(version.pk, {}), observed, now) for version in observed.versions]


def predict_start(endpoint: Endpoint, version: EndpointVersion, now: datetime) -> cold_start.ColdStart:
    """How long the next replica takes, from the past starts of this endpoint."""
    begun = Lease.objects.filter(attempt__replica__endpoint=endpoint).select_related("node", "attempt__replica")
    past = []
    for lease in begun.order_by("-attempt__replica__created_at")[:STARTS_READ]:
        replica = lease.attempt.replica
        if replica.ready_at is None and replica.state not in REPLICA_LIVE:
            continue  # failed starts carry no information
        seconds = ((replica.ready_at or now) - replica.created_at).total_seconds()
        past.append(cold_start.PastStart(_plan(version, lease), seconds, is_over=replica.ready_at is not None))
    return cold_start.estimate(_plan(version, None), past)


def node_class(lease: Lease) -> str:
    """What its node is, as far as speed goes: only replicas on equal ones are compared."""
    models = sorted(each.device.model for each in lease.lease_devices.all())
    return f"{lease.node.executor} {lease.device_count} x {', '.join(dict.fromkeys(models))}"


def _plan(version: EndpointVersion, lease: Lease | None) -> cold_start.StartPlan:
    serve = serve_of(spec_of(version))
    weights = version.input_artifact.size_bytes / MIB if version.input_artifact else WEIGHTS_MIB_UNKNOWN
    return cold_start.StartPlan(
        executor=lease.node.executor if lease else "",
        engine=serve.engine,
        weights_mib=weights,
        is_cached=False,
        node_class=lease.node.executor if lease else "",
    )


def _leases(endpoint: Endpoint) -> list[Lease]:
    live = Lease.objects.live().filter(attempt__replica__endpoint=endpoint, attempt__replica__state__in=REPLICA_LIVE)
    leases = live.select_related("node", "offer", "attempt__replica__version")
    return list(leases.prefetch_related("lease_devices__device").order_by("attempt__number"))


def _load(endpoint: Endpoint, now: datetime) -> dict[str, Any]:
    """The sums over all gateways that report."""
    found: dict[str, Any] = {"in_flight": 0, "queued": 0, "queue_seconds_max": 0.0, "is_wanted": False}
    fresh = now - timedelta(seconds=GATEWAY_SECONDS_MAX)
    for loads in Gateway.objects.filter(seen_at__gt=fresh).values_list("loads", flat=True):
        load = (loads.get("endpoints") or {}).get(str(endpoint.pk), {})
        found["in_flight"] += int(load.get("in_flight", 0))
        found["queued"] += int(load.get("queued", 0))
        found["queue_seconds_max"] = max(found["queue_seconds_max"], float(load.get("queue_seconds_max", 0)))
        found["is_wanted"] = found["is_wanted"] or bool(load.get("is_wanted"))
    return found


def _replica(replica: Replica, now: datetime, unsound: dict[UUID, str]) -> ReplicaView:
    state = ReplicaState(replica.state)
    since = {
        ReplicaState.READY: replica.ready_at,
        ReplicaState.DRAINING: replica.draining_at,
        ReplicaState.STARTING: replica.seen_at if replica.ready_at else replica.created_at,
    }.get(state)
    return ReplicaView(
        id=replica.pk,
        state="starting" if state == ReplicaState.STARTING else "ready" if state == ReplicaState.READY else "draining",
        seconds=(now - (since or replica.created_at)).total_seconds(),
        was_ready=replica.ready_at is not None,
        is_on_demand=replica.is_on_demand,
        is_failing=replica.pk in unsound,
    )


def _leaving(leases: list[Lease], now: datetime) -> dict[UUID, str]:
    """Replicas that will have to go soon, and why: another is started before."""
    found = {}
    for lease in leases:
        left_ms = payable_ms(lease.rate_units_per_hour, lease.cap_units) - lease.observed_ms
        if lease.running_at is not None and left_ms < ROTATE_SECONDS * 1000:
            found[lease.attempt.replica.pk] = "its lease has nearly reached its cap"
        if _is_node_leaving(lease, now):
            found[lease.attempt.replica.pk] = "its node is leaving"
    return found


def _is_node_leaving(lease: Lease, now: datetime) -> bool:
    closes = schedule.open_seconds(schedule.of(lease.node), now)
    return lease.node.state != NodeState.ONLINE or closes < LEAVING_SECONDS


def _sample(lease: Lease, samples: dict[UUID, dict[str, float]]) -> spreading.Sample:
    sums = samples.get(lease.attempt.replica.pk, {})
    timed, speeds = sums.get("timed", 0), sums.get("speeds", 0)
    return spreading.Sample(
        id=lease.attempt.replica.pk,
        node_class=node_class(lease),
        served=int(sums.get("served", 0) + sums.get("failed", 0)),
        failed=int(sums.get("failed", 0)),
        first_token_ms=math.exp(sums["log_ms_sum"] / timed) if timed else None,
        tokens_per_second=sums["speed_sum"] / speeds if speeds else None,
    )


def _placed(
    lease: Lease, now: datetime, unsound: dict[UUID, str], samples: dict[UUID, dict[str, float]]
) -> spreading.Placed:
    replica, node = lease.attempt.replica, lease.node
    return spreading.Placed(
        id=replica.pk,
        node_id=lease.node_id,
        provider_id=node.provider_id,
        is_ready=replica.state == ReplicaState.READY,
        is_on_demand=replica.is_on_demand,
        is_failing=replica.pk in unsound,
        is_node_leaving=_is_node_leaving(lease, now),
        usd_micros_per_token=float(lease.rate_usd_micros_per_hour),
        served_lately=int(samples.get(replica.pk, {}).get("served", 0)),
    )


def _version(version: EndpointVersion, sums: dict[str, float], observed: Observation, now: datetime) -> VersionView:
    mine = [lease.attempt.replica for lease in observed.leases if lease.attempt.replica.version_id == version.pk]
    timed = sums.get("timed", 0)
    mean = sums["log_ms_sum"] / timed if timed else 0.0
    variance = max(sums["log_ms_squares"] / timed - mean**2, 0.0) if timed else 0.0
    return VersionView(
        number=version.number,
        state="starting" if version.state == VersionState.STARTING else "live",
        share=version.share,
        ready=sum(replica.state == ReplicaState.READY for replica in mine),
        age_seconds=(now - version.created_at).total_seconds(),
        step_seconds=(now - (version.stepped_at or version.created_at)).total_seconds(),
        starts_failed=_failed_starts(version),
        served=int(sums.get("served", 0) + sums.get("failed", 0)),
        failed=int(sums.get("failed", 0)),
        first_tokens=int(timed),
        first_token_log_mean=mean,
        first_token_log_sd=math.sqrt(variance),
    )


def _failed_starts(version: EndpointVersion) -> int:
    gone = Replica.objects.filter(version=version, state=ReplicaState.GONE, ready_at=None)
    return gone.exclude(reason__in=SAYS_NOTHING).count()
