"""Give an endpoint the replicas that it lacks: one after the other, each in a transaction, like any attempt.

1  screen: where it fits, and devices are free (matching/fit.py) and not kept for a job that waited before
2  rank: a token is cheapest, in a failure domain of its own, where nothing of it broke lately (spreading.py)
3  the window of money, the attempt in a free slot, its lease, the replica; all of it or nothing
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from billing.errors import AccountFrozen, InsufficientFunds
from jobs import fleet, leasing, lifecycle
from jobs.costs import charged_of
from jobs.errors import DeviceTaken, NotEnoughMoney
from jobs.matching.cost import Seat
from jobs.matching.fit import screen
from jobs.matching.match import MatchResult, SeatTaken, match
from jobs.matching.request import Demand, MatchRequest
from jobs.matching.snapshot import FleetSnapshot
from jobs.models import Attempt, Endpoint, EndpointVersion, Job, Lease, Replica
from jobs.placement import requests_before, reserve_seat
from jobs.pricing import demand_of
from jobs.serving import payments, replicas
from jobs.serving.endpoints import spec_of
from jobs.serving.seeing import wish_of
from jobs.serving.spreading import FAILED_LATELY_SECONDS, Candidate, Placed, Wish, rank, tokens_bound
from jobs.spec import Spec
from jobs.states import JOB_WAITING, JobState, ReplicaState, VersionState
from jobs.sync.wake import wake_nodes
from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth
from provider_agent.protocol import Fault, Reason

log = logging.getLogger(__name__)

PLACED_MAX = 8  # replicas of one endpoint in one tick
WEIGHTS_BYTES_UNKNOWN = 2 << 30  # of a hub's model: nodes are compared, so its size moves all alike
PAUSE_SECONDS, SHORT_LIVES_MAX = 5, 9  # after short lives in a row: 0, 5 s, 10 s, ... at most 11 minutes
SHORT_LIFE = timedelta(seconds=60)
_ME = ""  # among the keys of what waits, which are ids
_MEANT = frozenset({Reason.REPLICA_RETIRED, Reason.CANCELLED_BY_CUSTOMER, Reason.NODE_DRAINED})


def place_replicas(
    endpoint: Endpoint,
    version: EndpointVersion,
    count: int,
    *,
    placed: list[Placed],
    only_on_demand: bool = False,
) -> int:
    """Place up to `count` more replicas of a version; returns how many were. What is missing says why.

    `placed`: all live replicas of the endpoint as they were seen; it grows by those that are placed, and where there
    are others by now, none is. `only_on_demand`: on nodes that promise to stay, or not at all.
    """
    spec = spec_of(version)
    if count <= 0 or spec.serve is None or paused_until(version) > clock.now():
        return 0
    wish = wish_of(spec.serve, only_on_demand=only_on_demand)
    done = 0
    if not placed:
        _pause_where_spent(endpoint)
    for _ in range(min(count, PLACED_MAX)):  # one by one: each changes where the next should not be
        seat = find_seat(endpoint, version, spec, placed, wish)
        if seat is None or not _try(endpoint, version, seat, live_seen=len(placed)):
            break
        placed.append(Placed(seat.seat.node_id, seat.seat.node_id, seat.provider_id, is_on_demand=seat.is_on_demand))
        done += 1
    return done


def say_why(endpoint: Endpoint, message: str) -> None:
    """What an endpoint waits for, for people."""
    Job.objects.filter(pk=endpoint.job_id).exclude(waiting_for=message).update(waiting_for=message)


def paused_until(version: EndpointVersion) -> datetime:
    """Not before then is another replica started: each short life in a row, but the first, doubles the pause.

    Of one version: a bad deploy must not hold up who takes the place of a good one's lost replica.
    """
    ended = Replica.objects.filter(version=version, state=ReplicaState.GONE).order_by("-ended_at")
    short: list[Replica] = []
    for replica in ended[:SHORT_LIVES_MAX]:
        if replica.reason in _MEANT or _life_of(replica) >= SHORT_LIFE:
            break
        short.append(replica)
    if len(short) < 2 or short[0].ended_at is None:
        return clock.now()
    return short[0].ended_at + timedelta(seconds=PAUSE_SECONDS * 2 ** (len(short) - 2))


def _life_of(replica: Replica) -> timedelta:
    """How long it was of use."""
    if replica.ready_at is None or replica.ended_at is None:
        return timedelta(0)
    return replica.ended_at - replica.ready_at


class Found(NamedTuple):
    """Where a replica goes."""

    seat: SeatTaken
    provider_id: UUID
    is_on_demand: bool


def find_seat(
    endpoint: Endpoint, version: EndpointVersion, spec: Spec, placed: Sequence[Placed], wish: Wish
) -> Found | None:
    """The best free seat that fits (`spreading.rank`); where there is none, the endpoint says why."""
    job, snapshot = endpoint.job, fleet.take_snapshot()
    demand = _demand(job, spec)
    since = _queued_at(endpoint, spec, len(placed))
    before = requests_before(since, job.priority)
    kept = match(before, snapshot)
    snapshot = _without(snapshot, kept)
    seats = {
        snapshot.node_ids[seat.row]: seat
        for seat in screen(demand, snapshot).seats
        if len(snapshot.groups[seat.row][seat.group].free) >= demand.devices
    }
    broke = _broken_nodes(endpoint)
    weights = version.input_artifact.size_bytes if version.input_artifact else WEIGHTS_BYTES_UNKNOWN
    candidates = [_candidate(seat, snapshot, demand, broke, weights, wish.streams) for seat in seats.values()]
    ranked = rank(candidates, placed, wish)
    if not ranked:
        if not wish.only_on_demand:
            me = MatchRequest(_ME, demand, priority=job.priority, queued_at=since)
            reasons = match([*before, me], fleet.take_snapshot()).reasons
            words = reasons[_ME].message if _ME in reasons else "Every node that fits is taken."
            say_why(endpoint, f"{_waits_beside(version)}{words}")
        return None
    best = ranked[0]
    seat = seats[best.node_id]
    offer_id = snapshot.offer_ids[seat.row]
    assert offer_id is not None  # noqa: S101 - a node without an offer has no seat
    free = snapshot.groups[seat.row][seat.group].free[: demand.devices]
    taken = SeatTaken(best.node_id, offer_id, free, snapshot.prices_usd_micros[seat.row])
    return Found(taken, best.provider_id, best.is_on_demand)


def _queued_at(endpoint: Endpoint, spec: Spec, live: int) -> datetime:
    """Since when a replica is in the queue: the ones it always has since its launch, any more since they are wanted."""
    least = spec.serve.replicas.min if spec.serve is not None else 0
    return endpoint.job.queued_at or clock.now() if live < max(least, 1) else clock.now()


def _without(snapshot: FleetSnapshot, kept: MatchResult) -> FleetSnapshot:
    """What is left when the waiting jobs that come first have taken and reserved theirs."""
    taken = {device for each in kept.placements.values() for seat in each.seats for device in seat.device_ids}
    if not taken and not kept.reserved:
        return snapshot
    groups = tuple(
        tuple(
            group._replace(
                free=() if node_id in kept.reserved else tuple(each for each in group.free if each not in taken)
            )
            for group in row_groups
        )
        for node_id, row_groups in zip(snapshot.node_ids, snapshot.groups, strict=True)
    )
    return replace(snapshot, groups=groups)


def _waits_beside(version: EndpointVersion) -> str:
    """Of a version that is to take over from another, which answers meanwhile."""
    if version.number == 1 or version.state != VersionState.STARTING:
        return ""
    return f"Version {version.number} waits for room beside the one before it (`souk take-back` ends that): "


def _candidate(  # noqa: PLR0917 - what a place is judged by
    seat: Seat, snapshot: FleetSnapshot, demand: Demand, broke: Mapping[UUID, datetime], weights: int, streams: int
) -> Candidate:
    row, node_id = seat.row, snapshot.node_ids[seat.row]
    group = snapshot.groups[row][seat.group]
    return Candidate(
        node_id=node_id,
        provider_id=snapshot.provider_ids[row],
        usd_micros_per_hour=snapshot.prices_usd_micros[row] * demand.devices,
        tokens_per_second=tokens_bound(
            weights_bytes=max(weights, 1),
            streams=streams,
            # Where it was not measured, computing is taken for the bound.
            memory_bytes_per_second=group.memory_bytes_per_second * demand.devices or math.inf,
            flops_per_second=seat.flops_per_device * demand.devices,
            kind=group.kind,
        ),
        region=snapshot.regions[row],
        failures=snapshot.failures[row],
        successes=snapshot.successes[row],
        open_seconds=snapshot.open_seconds[row],
        seconds_max=snapshot.seconds_max[row],
        failed_here_seconds=(clock.now() - broke[node_id]).total_seconds() if node_id in broke else None,
    )


def _try(endpoint: Endpoint, version: EndpointVersion, found: Found, *, live_seen: int) -> bool:
    try:
        with transaction.atomic():
            job = lifecycle.lock(endpoint.job_id)
            if job.attempts.live().count() > live_seen:
                return False  # another tick was faster
            return _place(job, endpoint, version, found)
    except DeviceTaken as error:
        log.info("A replica's placement lost a race: %s", error, extra={"job_id": str(endpoint.job_id)})
        fleet.forget_supply()
    except InsufficientFunds as error:
        say_why(endpoint, f"The balance does not cover the endpoint's hold. {error.message}")
    except (AccountFrozen, NotEnoughMoney) as error:
        say_why(endpoint, error.message)
    return False


def _place(job: Job, endpoint: Endpoint, version: EndpointVersion, found: Found) -> bool:
    if job.state not in (*JOB_WAITING, JobState.PLACED, JobState.RUNNING) or job.cancel_requested_at is not None:
        return False
    if lifecycle.is_late(job):
        return False
    seat = found.seat
    rate = seat.price_usd_micros * len(seat.device_ids)
    cap = _open_money(job, rate)
    if cap <= 0:
        say_why(endpoint, "The budget is spoken for by the replicas that there are.")
        return False
    attempt = Attempt.objects.create(job=job, number=_next_number(job), slot=_free_slot(job))
    record_birth(attempt, data={"job": str(job.pk), "number": attempt.number, "slot": attempt.slot})
    price = leasing.LeasePrice(
        price_usd_micros=seat.price_usd_micros,
        cap_usd_micros=cap,
        asset=job.quote.asset,
        rate_units_per_hour=rate,
        cap_units=cap,
    )
    reserve_seat(attempt, seat, 0, price)
    replicas.begin(attempt, version, is_on_demand=found.is_on_demand)
    if job.state in JOB_WAITING:
        advance(job, JobState.PLACED, data={"attempt": str(attempt.pk)}, waiting_for="", message="")
    else:
        Job.objects.filter(pk=job.pk).update(waiting_for="")
    wake_nodes([seat.node_id])
    return True


def _open_money(job: Job, rate: int) -> int:
    """What one more lease may cost, in micro-USD, with the hold in place; 0 where nothing is left for it."""
    if not payments.open_window(job) or not payments.has_window(job):
        return 0
    # While a version takes over, or one replica replaces another, there are up to twice as many.
    return payments.lease_cap(job, rate, replicas_max=2 * payments.replicas_max(job))


def _pause_where_spent(endpoint: Endpoint) -> None:
    """Where nothing is there and what is left of the cap pays no replica, the job waits for its owner to raise it."""
    with transaction.atomic():
        job = lifecycle.lock(endpoint.job_id)
        if job.state != JobState.RUNNING or job.attempts.live().exists() or payments.has_budget(job):
            return
        message = f"What is left of the budget pays no replica. Raise it: souk resume {job.pk}"
        advance(job, JobState.PAUSED, reason=Reason.BUDGET_EXHAUSTED, message=message, waiting_for="")


def _next_number(job: Job) -> int:
    newest = job.attempts.order_by("-number").values_list("number", flat=True).first()
    return (newest or 0) + 1


def _free_slot(job: Job) -> int:
    """The smallest that no live attempt has; the database lets one have each."""
    taken = set(job.attempts.live().values_list("slot", flat=True))
    return next(slot for slot in range(len(taken) + 1) if slot not in taken)


def _demand(job: Job, spec: Spec) -> Demand:
    left = (job.deadline_at - clock.now()).total_seconds() if job.deadline_at else None
    return demand_of(
        spec,
        price_ceiling_usd_micros=job.price_ceiling_usd_micros,
        cap_usd_micros=job.cap_usd_micros - charged_of(job).usd_micros,
        seconds_left=left,
    )


def _broken_nodes(endpoint: Endpoint) -> dict[UUID, datetime]:
    """Nodes on which a replica of it broke lately by their own or the network's fault, and when."""
    broken = Lease.objects.filter(
        attempt__replica__endpoint=endpoint,
        attempt__fault__in=[Fault.PROVIDER, Fault.NETWORK],
        ended_at__gt=clock.now() - timedelta(seconds=FAILED_LATELY_SECONDS),
    )
    rows = broken.order_by("ended_at").values_list("node_id", "ended_at")
    return {node_id: ended_at for node_id, ended_at in rows if ended_at is not None}
