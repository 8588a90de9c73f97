"""Give an endpoint the replicas that it lacks: one after the other, each in a transaction, like any attempt.

1  the best free placement slot (placement_slots.py), or the endpoint shows why there is none
2  the prepaid window, the attempt in a free slot, its lease, the replica; all of it or nothing
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import transaction

from billing.errors import AccountFrozen, InsufficientFunds
from jobs import lifecycle
from jobs.endpoints import amounts, payments, replicas
from jobs.endpoints.versions import spec_of
from jobs.errors import DeviceTaken, NotEnoughMoney
from jobs.leases import leasing
from jobs.matching import fleet
from jobs.models import Attempt, Endpoint, EndpointVersion, Job, Replica
from jobs.placing.placement import reserve_slot
from jobs.scaling.spreading import Placed
from jobs.serving.observe import requirements_of
from jobs.serving.placement_slots import FoundSlot, find_slot
from jobs.spec import serve_of
from jobs.states import JOB_WAITING, JobState, ReplicaState
from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth
from marketplace.nodes.wake import wake_nodes
from provider_agent.protocol import Reason
from provider_agent.protocol.backoff import backoff_seconds

log = logging.getLogger(__name__)

PLACED_MAX = 8  # replicas of one endpoint in one tick
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 5, 640  # after short lives in a row: 0, 5 s, 10 s, ... at most 11 minutes
SHORT_LIVES_MAX = 9
SHORT_LIFE = timedelta(seconds=60)
_MEANT = frozenset({Reason.REPLICA_RETIRED, Reason.CANCELLED_BY_CUSTOMER, Reason.NODE_DRAINED})


def place_replicas(
    endpoint: Endpoint,
    version: EndpointVersion,
    count: int,
    *,
    placed: list[Placed],
    only_on_demand: bool = False,
) -> int:
    """Place up to `count` more replicas of a version; returns how many were. The endpoint shows why others are missing.

    `placed`: all live replicas of the endpoint as they were seen; it grows by those that are placed, and where there
    are others by now, none is. `only_on_demand`: on nodes that promise to stay, or not at all.
    """
    spec = spec_of(version)
    if count <= 0 or paused_until(version) > clock.now():
        return 0
    requirements = requirements_of(serve_of(spec), only_on_demand=only_on_demand)
    done = 0
    if not placed:
        _pause_where_spent(endpoint)
    for _ in range(min(count, PLACED_MAX)):  # one by one: each changes where the next should not be
        found = find_slot(endpoint, version, spec, placed, requirements)
        if isinstance(found, str):
            if not only_on_demand:
                show_reason(endpoint, found)
            break
        if not _try(endpoint, version, found, live_seen=len(placed)):
            break
        node_id = found.slot.node_id
        placed.append(Placed(node_id, node_id, found.provider_id, is_on_demand=found.is_on_demand))
        done += 1
    return done


def show_reason(endpoint: Endpoint, message: str) -> None:
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
    pause = backoff_seconds(len(short) - 1, first=PAUSE_SECONDS, most=PAUSE_SECONDS_MAX)
    return short[0].ended_at + timedelta(seconds=pause)


def _life_of(replica: Replica) -> timedelta:
    """How long it was of use."""
    if replica.ready_at is None or replica.ended_at is None:
        return timedelta(0)
    return replica.ended_at - replica.ready_at


def _try(endpoint: Endpoint, version: EndpointVersion, found: FoundSlot, *, live_seen: int) -> bool:
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
        show_reason(endpoint, f"The balance does not cover the endpoint's hold. {error.message}")
    except (AccountFrozen, NotEnoughMoney) as error:
        show_reason(endpoint, error.message)
    return False


def _place(job: Job, endpoint: Endpoint, version: EndpointVersion, found: FoundSlot) -> bool:
    if job.state not in (*JOB_WAITING, JobState.PLACED, JobState.RUNNING) or job.cancel_requested_at is not None:
        return False
    if job.is_late:
        return False
    slot = found.slot
    rate = slot.price_usd_micros * len(slot.device_ids)
    cap = _open_money(job, rate)
    if cap <= 0:
        show_reason(endpoint, "The budget is spoken for by the replicas that there are.")
        return False
    attempt = Attempt.objects.create(job=job, number=_next_number(job), slot=_free_slot(job))
    record_birth(attempt, data={"job": str(job.pk), "number": attempt.number, "slot": attempt.slot})
    price = leasing.LeasePrice(
        price_usd_micros=slot.price_usd_micros,
        cap_usd_micros=cap,
        asset=job.quote.asset,
        rate_units_per_hour=rate,
        cap_units=cap,
    )
    reserve_slot(attempt, slot, 0, price)
    replicas.begin(attempt, version, is_on_demand=found.is_on_demand)
    if job.state in JOB_WAITING:
        advance(job, JobState.PLACED, data={"attempt": str(attempt.pk)}, waiting_for="", message="")
    else:
        Job.objects.filter(pk=job.pk).update(waiting_for="")
    wake_nodes([slot.node_id])
    return True


def _open_money(job: Job, rate: int) -> int:
    """What one more lease may cost, in micro-USD, with the hold in place; 0 where nothing is left for it."""
    if not payments.open_window(job) or not payments.has_window(job):
        return 0
    # While a version takes over, or one replica replaces another, there are up to twice as many.
    return payments.lease_cap(job, rate, replicas_max=2 * amounts.replicas_max(job))


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
