"""Trainings whose job files have a range of nodes grow, where that is cheap and nobody else waits for the nodes.

    1  invite   nodes in the fabric of the gang are reserved for it: their programs load, and wait. The gang trains on
    2  join     once they wait, soon after a checkpoint: the attempt's next generation has them
    3  give up  where one of them comes to nothing, or it is not worth it any more: the gang is as it was

Who waits to join costs nothing and can earn nothing. Both steps ask jobs/matching/growth.py, within what the leases of
the gang may still cost. Call it after what waits was placed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef

from jobs import lifecycle
from jobs.errors import AssetTooCoarse, DeviceTaken, NoGangPort
from jobs.leases import joining, leasing
from jobs.leases.gangs import next_port
from jobs.matching import fleet
from jobs.matching.demand import MatchRequest
from jobs.matching.fit import screen
from jobs.matching.match import Placement, match
from jobs.matching.places import places_of
from jobs.matching.reservations import Reservations
from jobs.matching.snapshot import FleetSnapshot
from jobs.models import Attempt, Job, Lease
from jobs.placing.growing_gangs import GrowingGang
from jobs.placing.placement import request_of, reserve_slot
from jobs.placing.replacing import near_nodes
from jobs.pricing.price_locks import price_of
from jobs.running import resizing
from jobs.spec.kinds.registry import placed_whole
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.nodes.wake import wake_nodes
from provider_agent.protocol import AttemptState, Reason

ATTEMPTS_MAX: Final = 100  # of one look
LOOK_SECONDS_MAX: Final = 2.0  # no attempt is looked at later in it: what waits is placed by the same task
WAITING_MAX: Final = 50  # jobs that wait, of the same priority or a higher one: with more of them nothing grows
REDO_MS_SOON: Final = 30_000  # what is done again is less: no later checkpoint is waited for
PATIENCE_SECONDS: Final = 600  # from the invitation on such a checkpoint is waited for
JOIN_SECONDS_MAX: Final = 1800  # from the invitation; then it is given up

log = logging.getLogger(__name__)


def grow(reservations: Reservations) -> int:
    """Invite nodes to gangs that may grow, and let those join that wait; returns how many gangs changed.

    `reservations`: what was kept for jobs that wait.
    """
    live = Attempt.objects.live().filter(state=AttemptState.RUNNING, job__spec__resources__nodes__regex=r"\.\.")
    joined = Exists(Lease.objects.joining().filter(attempt=OuterRef("pk")))
    looks: list[tuple[UUID, Callable[[UUID], bool]]] = []
    looks += [(pk, _join) for pk in live.filter(joined).order_by("pk").values_list("pk", flat=True)[:ATTEMPTS_MAX]]
    wanted: dict[int, frozenset[UUID]] = {}
    invite = partial(_invite, reservations=reservations, wanted=wanted)
    looks += [(pk, invite) for pk in live.exclude(joined).order_by("?").values_list("pk", flat=True)[:ATTEMPTS_MAX]]
    until, count = time.monotonic() + LOOK_SECONDS_MAX, 0
    for attempt_id, look in looks:
        if time.monotonic() > until:
            break
        with log_failures("A gang could not grow.", attempt_id=str(attempt_id)):
            count += look(attempt_id)
    return count


# 1. Invite.


def _invite(attempt_id: UUID, *, reservations: Reservations, wanted: dict[int, frozenset[UUID]]) -> bool:
    """`wanted`: of each priority of a job, what jobs that wait could use; kept for the whole look."""
    attempt = Attempt.objects.select_related("job__quote__asset").get(pk=attempt_id)
    resume = resizing.may_grow(attempt.job, attempt)
    if resume is None or not resizing.is_rested(attempt):
        return False
    snapshot = fleet.take_snapshot()
    nodes = near_nodes(attempt, snapshot, mine=_known(attempt)) & _free(snapshot)
    if not nodes:
        return False
    priority = attempt.job.priority
    if priority not in wanted:
        wanted[priority] = _wanted(priority, snapshot)
    nodes -= wanted[priority]
    gang = GrowingGang(attempt, resume, snapshot)
    if not nodes or gang.left is None:
        return False
    most = resizing.nodes_of(attempt.job)[1] - len(gang.leases)
    for count in _sizes(min(most, len(nodes))):
        found = match([MatchRequest("", gang.demand_for(count, nodes))], snapshot, reservations=reservations)
        placement = found.placements.get("")
        if placement is not None and gang.growth_with(gang.nodes_of_slots(placement.slots)) is not None:
            return _reserve(attempt_id, placement)
    return False


def _reserve(attempt_id: UUID, placement: Placement) -> bool:
    try:
        with transaction.atomic():
            job = lifecycle.lock(Attempt.objects.values_list("job_id", flat=True).get(pk=attempt_id))
            attempt = Attempt.objects.select_related("job").get(pk=attempt_id)
            if resizing.may_grow(job, attempt) is None or attempt.leases.joining().exists():
                return False
            next_port(attempt, [slot.node_id for slot in placement.slots])  # whether they can meet at all
            price = price_of(job)
            for rank, slot in zip(_free_ranks(attempt), placement.slots, strict=False):
                rate = slot.price_usd_micros * len(slot.device_ids)
                lease_price = leasing.LeasePrice(
                    price_usd_micros=slot.price_usd_micros,
                    cap_usd_micros=0,  # it has a share of what the gang may cost once it has joined
                    asset=job.quote.asset,
                    rate_units_per_hour=price.payment.units_down(rate),
                    cap_units=0,
                    lock=price.lock,
                )
                reserve_slot(attempt, slot, rank, lease_price, is_joining=True)
            wake_nodes([slot.node_id for slot in placement.slots])
            return True
    except (AssetTooCoarse, DeviceTaken, NoGangPort) as error:
        log.info("A gang did not grow yet: %s", error, extra={"attempt_id": str(attempt_id)})
        fleet.forget_supply()
        return False


def _known(attempt: Attempt) -> set[UUID]:
    """Nodes that are or were of the gang, or could not join it; not those that waited for it in vain."""
    known = attempt.leases.exclude(reported_reason=Reason.NOT_JOINED.value, follows_sizes=True)
    return set(known.values_list("node_id", flat=True))


def _free(snapshot: FleetSnapshot) -> frozenset[UUID]:
    """Nodes with a device that is free."""
    rows = zip(snapshot.node_ids, snapshot.groups, strict=True)
    return frozenset(node_id for node_id, groups in rows if any(group.free for group in groups))


def _wanted(priority: int, snapshot: FleetSnapshot) -> frozenset[UUID]:
    """Nodes on which a job of this priority or a higher one that waits could be placed, now or once they are free."""
    waiting = Job.objects.waiting().filter(
        kind__in=placed_whole(), price_halt=None, unfunded_units=None, priority__gte=priority
    )
    jobs = list(waiting.select_related("quote__asset")[: WAITING_MAX + 1])
    if len(jobs) > WAITING_MAX:
        return frozenset(snapshot.node_ids)
    found: set[UUID] = set()
    for each in jobs:
        demand = request_of(each).demand
        slots = screen(demand, snapshot).slots
        places = places_of(demand)(demand, snapshot, slots)
        if places.found:
            found |= {snapshot.node_ids[slot.row] for slot in slots if slot.row not in places.excluded}
    return frozenset(found)


def _sizes(most: int) -> Iterator[int]:
    """How many nodes more are tried: the most, and half of it again and again."""
    while most > 0:
        yield most
        most //= 2


def _free_ranks(attempt: Attempt) -> Iterator[int]:
    """The smallest that no lease of the gang has."""
    taken = set(attempt.leases.filter(replaced_at=None).values_list("node_rank", flat=True))
    rank = 0
    while True:
        if rank not in taken:
            yield rank
        rank += 1


# 2. Join, or 3. give up.


def _join(attempt_id: UUID) -> bool:
    snapshot = fleet.take_snapshot()
    with transaction.atomic():
        job = lifecycle.lock(Attempt.objects.values_list("job_id", flat=True).get(pk=attempt_id))
        attempt = Attempt.objects.select_related("job__quote__asset").get(pk=attempt_id)
        leases = list(attempt.leases.joining().order_by("node_rank"))
        if not leases:
            return False
        waited = clock.now() - min(lease.reserved_at for lease in leases)
        is_over = waited > timedelta(seconds=JOIN_SECONDS_MAX)
        resume = resizing.may_grow(job, attempt)
        if is_over or job.cancel_requested_at is not None or attempt.state != AttemptState.RUNNING:
            return bool(joining.give_up(attempt))
        if resume is None or not resizing.is_ready(leases):
            return False
        gang = GrowingGang(attempt, resume, snapshot)
        if gang.redo_ms > REDO_MS_SOON and waited < timedelta(seconds=PATIENCE_SECONDS):
            return False
        growth = gang.growth_with(gang.nodes_of_leases(leases))
        try:
            if growth is not None:
                resizing.join(job, attempt, once_usd_micros=growth.once_usd_micros)
                return True
        except NoGangPort as error:
            log.info("A gang did not grow: %s", error, extra={"attempt_id": str(attempt_id)})
        return bool(joining.give_up(attempt))
