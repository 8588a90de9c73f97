"""Trainings whose job files have a range of nodes grow, where that is cheap and nobody else waits for the nodes.

    1  invite   nodes in the fabric of the gang are reserved for it: their programs load, and wait. The gang trains on
    2  join     once they wait, soon after a checkpoint: the attempt's next generation has them
    3  give up  where one of them comes to nothing, it is not worth it any more, or a job that waits could use one: the
                gang is as it was

Who waits to join costs nothing and can earn nothing. Both steps ask jobs/matching/growth.py, within what the leases of
the gang may still cost. Call it after what waits was placed.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from enum import Enum, auto
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
from jobs.matching.growth import Growth
from jobs.matching.match import Placement, match
from jobs.matching.reservations import Reservations
from jobs.models import Attempt, Lease
from jobs.placing.growing_gangs import GrowingGang, redo_ms_of
from jobs.placing.growing_looks import GrowingLook
from jobs.placing.placement import reserve_slot
from jobs.placing.replacing import near_nodes
from jobs.pricing.price_locks import price_of
from jobs.running import resizing
from jobs.states import JOB_ON_NODES
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.nodes.wake import wake_nodes
from provider_agent.protocol import AttemptState, Reason

GANGS_MAX: Final = 1000  # read in one look, of those that may invite nodes
INVITES_MAX: Final = 10  # of them reckoned for: most find that it is not worth it, and the others have a later turn
JOINERS_MAX: Final = 2000  # nodes that wait to join some gang: with so many of them no more are invited
LOOK_SECONDS_MAX: Final = 1.0  # no attempt is looked at later in it: what waits is placed by the same task
REDO_MS_SOON: Final = 30_000  # what is done again is less: no later checkpoint is waited for
PATIENCE_SECONDS: Final = 600  # from the invitation on such a checkpoint is waited for
JOIN_SECONDS_MAX: Final = 1800  # from the invitation; then it is given up

# Of the leases that join, all are read in each look; no job file, and nothing else that is long.
_OF_JOINERS: Final = (
    *("node", "reserved_at", "reported_state", "stop_reason", "follows_generations", "follows_sizes"),
    *("attempt__state", "attempt__job__priority", "attempt__job__cancel_requested_at"),
)

log = logging.getLogger(__name__)


def grow(reservations: Reservations) -> int:
    """Invite nodes to gangs that may grow, and let those join that wait; returns how many gangs changed.

    `reservations`: what was kept for jobs that wait.
    """
    until, count = time.monotonic() + LOOK_SECONDS_MAX, 0
    for attempt_id, step in _steps(GrowingLook(reservations)):
        with log_failures("A gang could not grow.", attempt_id=str(attempt_id)):
            count += step()
        if time.monotonic() > until:
            break
    return count


def _steps(look: GrowingLook) -> Iterator[tuple[UUID, Callable[[], bool]]]:
    """What there is to do for which attempts: those with nodes that wait first, as long as they wait."""
    joiners = Lease.objects.joining().select_related("attempt__job").only(*_OF_JOINERS)
    joiners = joiners.order_by("reserved_at")[:JOINERS_MAX]
    by_attempt: defaultdict[UUID, list[Lease]] = defaultdict(list)
    for lease in joiners:
        by_attempt[lease.attempt_id].append(lease)
    for attempt_id, leases in by_attempt.items():
        if resizing.is_ready(leases) or _is_over(leases, look):
            yield attempt_id, partial(_join, attempt_id, look)
    if len(joiners) < JOINERS_MAX:
        for attempt_id in _open_gangs(look):
            yield attempt_id, partial(_invite, attempt_id, look)


# 1. Invite.


def _open_gangs(look: GrowingLook) -> list[UUID]:
    """Attempts that may have more nodes and have a free one in their fabric, some of them, in any order."""
    # One lease of each gang, by what its launcher says: so the job files of few are read.
    firsts = Lease.objects.members().filter(node_rank=0, follows_sizes=True, attempt__state=AttemptState.RUNNING)
    firsts = firsts.filter(attempt__job__state__in=JOB_ON_NODES, attempt__job__spec__resources__nodes__regex=r"\.\.")
    firsts = firsts.exclude(Exists(Lease.objects.joining().filter(attempt=OuterRef("attempt"))))
    found = list(firsts.order_by("?").values_list("attempt_id", "node_id")[:GANGS_MAX])
    if not found:
        return []
    fabrics = look.open_fabrics()
    return [attempt_id for attempt_id, node_id in found if look.fabric_of.get(node_id) in fabrics][:INVITES_MAX]


def _invite(attempt_id: UUID, look: GrowingLook) -> bool:
    attempt = Attempt.objects.select_related("job__quote__asset").get(pk=attempt_id)
    resume = resizing.may_grow(attempt.job, attempt)
    if resume is None or not resizing.is_rested(attempt):
        return False
    nodes = near_nodes(attempt, look.snapshot, mine=_known(attempt)) & look.free
    if not nodes:
        return False
    nodes -= look.wanted(attempt.job.priority)
    if not nodes:
        return False
    gang = GrowingGang(attempt, resume, look.snapshot)
    if gang.left is None:
        return False
    most = resizing.nodes_of(attempt.job)[1] - len(gang.leases)
    for count in _sizes(min(most, len(nodes))):
        request = MatchRequest("", gang.demand_for(count, nodes))
        placement = match([request], look.snapshot, reservations=look.reservations).placements.get("")
        if placement is not None and gang.growth_with(gang.nodes_of_slots(placement.slots)) is not None:
            look.take([slot.node_id for slot in placement.slots])  # also where it turns out that they are not free
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


class _Refusal(Enum):
    """Nodes that wait to join a gang do not join it: not yet, or not at all."""

    NOT_YET = auto()
    NEVER = auto()


def _join(attempt_id: UUID, look: GrowingLook) -> bool:
    """Decided without the job's lock first: most wait for a checkpoint, and the fleet is not read under it."""
    if _growth_now(attempt_id, look) is _Refusal.NOT_YET:
        return False
    with transaction.atomic():
        job = lifecycle.lock(Attempt.objects.values_list("job_id", flat=True).get(pk=attempt_id))
        attempt, growth = Attempt.objects.select_related("job").get(pk=attempt_id), _growth_now(attempt_id, look)
        if growth is _Refusal.NOT_YET:
            return False
        try:
            if growth is not _Refusal.NEVER:
                resizing.join(job, attempt, once_usd_micros=growth.once_usd_micros)
                return True
        except NoGangPort as error:
            log.info("A gang did not grow: %s", error, extra={"attempt_id": str(attempt_id)})
        return bool(joining.give_up(attempt))


def _growth_now(attempt_id: UUID, look: GrowingLook) -> Growth | _Refusal:
    """What it takes to complete an attempt's training with all nodes that wait to join it, where they should now."""
    leases = list(
        Lease.objects.joining().filter(attempt=attempt_id).select_related("attempt__job").prefetch_related("devices")
    )
    if not leases:
        return _Refusal.NOT_YET
    if _is_over(leases, look):
        return _Refusal.NEVER
    attempt = leases[0].attempt
    resume = resizing.may_grow(attempt.job, attempt)
    if resume is None or not resizing.is_ready(leases):
        return _Refusal.NOT_YET
    is_patient = _waited(leases) < timedelta(seconds=PATIENCE_SECONDS)
    if is_patient and redo_ms_of(attempt.leases.members(), resume) > REDO_MS_SOON:
        return _Refusal.NOT_YET
    gang = GrowingGang(attempt, resume, look.snapshot)
    return gang.growth_with(gang.nodes_of_leases(leases)) or _Refusal.NEVER


def _is_over(leases: Sequence[Lease], look: GrowingLook) -> bool:
    """Whether nodes that wait to join a gang never will: it took too long, the training is about to end, or a job
    that waits could use one of them."""
    attempt = leases[0].attempt
    is_ending = attempt.job.cancel_requested_at is not None or attempt.state != AttemptState.RUNNING
    if is_ending or _waited(leases) > timedelta(seconds=JOIN_SECONDS_MAX):
        return True
    return not look.wanted(attempt.job.priority).isdisjoint(lease.node_id for lease in leases)


def _waited(leases: Sequence[Lease]) -> timedelta:
    """Since the first of them was invited."""
    return clock.now() - min(lease.reserved_at for lease in leases)
