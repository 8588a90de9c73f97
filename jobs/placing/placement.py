"""Place what waits: one look at the fleet for the whole batch, then one transaction a job.

    1  the jobs that wait, in the queue's order: priority, then organisations take turns, then first come; not those
       whose money is not there, or whose token has no good price now
    2  match: a pure function decides where each goes, or why it does not
    3  for each: hold, attempt, leases, events; all of it or nothing
    4  on commit the nodes are woken
    5  the next batch, further down the queue, until every job was looked at

Where two placements want one device, the database lets one have it; the other waits for the next tick's fresh snapshot.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q

from billing.charging import holds, promotions
from billing.errors import AccountFrozen, InsufficientFunds
from jobs import lifecycle
from jobs.errors import AssetTooCoarse, DeviceTaken, NoGangPort, NotEnoughMoney, NoWallet, PriceUnsettled
from jobs.escrow import holding
from jobs.kinds.registry import kind_of
from jobs.leases import leasing
from jobs.leases.gangs import choose_port
from jobs.matching import fleet
from jobs.matching.demand import ISOLATIONS, MatchRequest, is_accepted
from jobs.matching.match import MatchResult, Placement, SlotTaken, match
from jobs.matching.reservations import Reservations
from jobs.models import Artifact, Attempt, Job, Lease
from jobs.placing import funding, reasons, requotes
from jobs.pricing.costs import charged_of
from jobs.pricing.price_locks import JobPrice
from jobs.quoting.quote_terms import demand_of
from jobs.spec import from_wire
from jobs.spec.model import DEFAULT_ISOLATION
from jobs.states import JOB_WAITING, JobState
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.foundation.states import advance, record_birth
from marketplace.nodes.models import Device, Node, Offer
from marketplace.nodes.wake import wake_nodes
from provider_agent.protocol import GANG_PORT_FIRST, ZERO_ADDRESS, Fault, Reason

log = logging.getLogger(__name__)

BATCH_MAX = 500  # jobs matched at once
BATCHES_MAX = 20  # in one tick: so many jobs further down the queue are looked at
TICK_SECONDS_MAX = 20.0  # no batch begins later in a tick
MATCH_SECONDS_MAX = 8.0  # of one match: those behind it are looked at in the next tick
MATCHES_MAX = 3  # of one batch: what a refused job was given is given to those behind it
SKIPPED_SECONDS = 60  # a job that fits nowhere, where the queue is longer than a batch: others are looked at first


@dataclass(slots=True)
class Tick:
    """One walk down the queue: which jobs were looked at, and what is kept for those of them that wait."""

    seen: set[UUID] = field(default_factory=set)
    reservations: Reservations = field(default_factory=Reservations)


def place_waiting(tick: Tick | None = None) -> int:
    """Place batch after batch down the queue, until every job that waits was looked at, also those that came meanwhile.

    A tick ends before that after BATCHES_MAX or TICK_SECONDS_MAX. Jobs that fit nowhere are not at its head the next
    time, nor are those without money; so the tick after it comes further. `tick` has what it kept for those that wait.
    """
    tick, placed, until = tick or Tick(), 0, time.monotonic() + TICK_SECONDS_MAX
    for _ in range(BATCHES_MAX):
        seen = len(tick.seen)
        placed += place_batch(tick)
        if len(tick.seen) == seen or time.monotonic() > until:
            break
    return placed


def place_batch(tick: Tick | None = None, limit: int | None = None) -> int:
    """Place as many of the next waiting jobs as fit; returns how many were placed."""
    tick, limit = tick or Tick(), limit or BATCH_MAX
    if not tick.seen:
        funding.readmit()
    queue = Job.objects.placeable().exclude(pk__in=tick.seen).select_related("quote__asset")
    waiting = list(queue[:limit])
    tick.seen.update(job.pk for job in waiting)
    if not waiting:
        return 0
    requests = []
    for turn, job in enumerate(funding.set_aside(waiting)):
        with log_failures("A waiting job could not be read.", job_id=str(job.id)):
            if not requotes.halts(job):
                requests.append(request_of(job, turn=turn))
    placed, result = _place_matched(requests, tick)
    reasons.show(result, {request.key: request.demand for request in requests}, waiting)
    if len(waiting) == limit:
        _skip([UUID(key) for key, reason in result.reasons.items() if not reason.is_possible])
    return placed


def _place_matched(requests: Sequence[MatchRequest], tick: Tick) -> tuple[int, MatchResult]:
    """How many were placed, and why the others were not. Where one is refused, the others are matched again."""
    placed = 0
    for _ in range(MATCHES_MAX):
        snapshot, is_late = fleet.take_snapshot(), _late_after(MATCH_SECONDS_MAX)
        result = match(requests, snapshot, reservations=tick.reservations, is_late=is_late)
        before = placed
        for key, placement in result.placements.items():
            with log_failures("A job could not be placed.", job_id=key):
                placed += place_job(UUID(key), placement)
        requests = [request for request in requests if request.key in result.reasons]
        if result.is_cut:  # the same gangs at the head would take the time of every tick
            _skip([UUID(request.key) for request in requests if request.demand.nodes > 1])
        if not requests or placed - before == len(result.placements):
            break
    tick.reservations = result.reservations
    return placed, result


def _late_after(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


def _skip(job_ids: Sequence[UUID]) -> None:
    Job.objects.filter(pk__in=job_ids).update(skipped_until=clock.now() + timedelta(seconds=SKIPPED_SECONDS))


def place_job(job_id: UUID, placement: Placement) -> bool:
    """Give one waiting job its leases, its attempt and its hold, in one transaction; False when it could not be.

    The job stays in the queue then, with what it waits for.
    """
    try:
        with transaction.atomic():
            return _place(lifecycle.lock(job_id), placement)
    except (DeviceTaken, NoWallet) as error:
        log.info("A placement lost a race: %s", error, extra={"job_id": str(job_id)})
        fleet.forget_supply()
    except InsufficientFunds as error:
        reasons.show_reason(job_id, f"The balance does not cover the job's cap. {error.message}")
    except PriceUnsettled:
        requotes.follow(job_id)
    except (AccountFrozen, AssetTooCoarse, NoGangPort, NotEnoughMoney) as error:
        reasons.show_reason(job_id, error.message)
        _skip([job_id])  # it would be given a place, and refuse it, in the next tick as well
    return False


def _place(job: Job, placement: Placement) -> bool:
    if job.state not in JOB_WAITING or job.cancel_requested_at is not None:
        return False
    # 1. Money first: no lease without a hold that covers it, at a price that is good now.
    if job.is_escrow and not holding.is_covered(job.id):
        return False
    price = requotes.settle_price(job)
    payment, held = price.payment, price.units_due(job.cap_usd_micros)
    if job.is_escrow and price.lock is not None:
        held = min(held, holding.held_units(job.id))  # what was charged at other prices is rounded by itself
    if not job.is_escrow and not holds.is_open(job.id):
        promotions.draw(job.organisation_id, job.id, held, asset_id=job.quote.asset_id)
        holds.place_hold(owner_id=job.organisation_id, job_id=job.id, amount=held, asset_id=job.quote.asset_id)
    charged = charged_of(job)
    if held <= charged.units:
        message = "The budget was used up by earlier attempts."
        lifecycle.end_job(job, JobState.FAILED, Reason.BUDGET_EXHAUSTED, message=message)
        return False
    # 2. The attempt, from the furthest checkpoint that is complete.
    number = job.attempts.count() + 1
    attempt = Attempt.objects.create(
        job=job,
        number=number,
        resume_artifact=Artifact.objects.resumable(job).first(),
        master_port=_port(job, number, placement),
    )
    record_birth(attempt, data={"job": str(job.id), "number": number})
    # 3. Its leases; each may cost its share of what is left.
    customer = holding.wallet_of(job) if job.is_escrow else ZERO_ADDRESS
    rates = [slot.price_usd_micros * len(slot.device_ids) for slot in placement.slots]
    left_usd_micros, left_units = max(0, job.cap_usd_micros - charged.usd_micros), held - charged.units
    for rank, (slot, rate) in enumerate(zip(placement.slots, rates, strict=True)):
        lease_price = leasing.LeasePrice(
            price_usd_micros=slot.price_usd_micros,
            cap_usd_micros=left_usd_micros * rate // sum(rates),
            asset=job.quote.asset,
            rate_units_per_hour=payment.units_down(rate),
            cap_units=left_units * rate // sum(rates),
            customer=customer,
            lock=price.lock,
        )
        reserve_slot(attempt, slot, rank, lease_price)
    # 4. The job.
    data = {"attempt": str(attempt.id), "number": number} | _price_data(price)
    advance(job, JobState.PLACED, data=data, waiting_for="", message="")
    wake_nodes([slot.node_id for slot in placement.slots])
    return True


def _price_data(price: JobPrice) -> dict[str, str]:
    """Of a token whose price was looked at again since the quote."""
    if price.lock is None:
        return {}
    return {"usd_micros_per_token": str(price.payment.usd_micros_per_token), "price": price.lock.reason}


def _port(job: Job, number: int, placement: Placement) -> int:
    """Of the gang; a job on one node is given one by its agent."""
    if len(placement.slots) == 1:
        return GANG_PORT_FIRST
    return choose_port(job.id.int + number, [slot.node_id for slot in placement.slots])


def reserve_slot(
    attempt: Attempt, slot: SlotTaken, rank: int, price: leasing.LeasePrice, *, is_joining: bool = False
) -> Lease:
    """Reserve a slot as the snapshot had it; raises DeviceTaken where its offer, its devices or the node's isolation
    changed since then."""
    offer = Offer.objects.rentable().select_related("node__provider").filter(pk=slot.offer_id).first()
    if offer is None or offer.price_usd_micros_per_device_hour != slot.price_usd_micros:
        raise DeviceTaken(node_id=str(slot.node_id))
    if not _is_accepted(attempt.job, offer.node):
        raise DeviceTaken(node_id=str(slot.node_id))
    devices: Sequence[Device] = list(Device.objects.rentable().filter(pk__in=slot.device_ids).order_by("index"))
    if len(devices) != len(slot.device_ids):
        raise DeviceTaken(node_id=str(slot.node_id))
    if attempt.job.is_escrow and not holding.allows(attempt.job, offer.node):
        raise NoWallet(node_id=str(slot.node_id), asset=price.asset.code)
    return leasing.reserve(
        attempt,
        offer,
        devices,
        node_rank=rank,
        price=price,
        is_joining=is_joining,
    )


def _is_accepted(job: Job, node: Node) -> bool:
    """Whether both sides still accept how this node isolates the job's program."""
    demanded = job.spec.get("resources", {}).get("isolation", DEFAULT_ISOLATION)
    return is_accepted(
        node.isolation,
        is_own=node.provider.organisation_id == job.organisation_id,
        allows_strangers=node.allows_strangers,
        isolations=ISOLATIONS[demanded],
    )


def request_of(job: Job, *, turn: int = 0) -> MatchRequest:
    left = (job.deadline_at - clock.now()).total_seconds() if job.deadline_at else None
    demand = demand_of(
        from_wire(job.spec),
        organisation_id=job.organisation_id,
        price_ceiling_usd_micros=job.price_ceiling_usd_micros,
        cap_usd_micros=job.cap_usd_micros - charged_of(job).usd_micros,
        seconds_left=left,
        done_share=_done_share(job),
        avoid=_avoided(job),
        only_nodes=holding.allowed_nodes(job) if job.is_escrow else None,
    )
    return MatchRequest(str(job.id), demand, job.priority, job.queued_at, turn, job.organisation_id)


def _avoided(job: Job) -> frozenset[UUID]:
    """The nodes that failed the job by themselves, and all of a provider who lacks its image or what it reads there."""
    # Of the platform's a node may be the cause after all: one that cannot run our programs would take every attempt.
    at_fault = Q(attempt__fault__in=[Fault.PROVIDER, Fault.NETWORK, Fault.PLATFORM])
    # Who says that a checkpoint is bad, or that there is no such image, may be wrong: another node tries it next.
    at_fault |= Q(attempt__reason__in=[Reason.BAD_CHECKPOINT.value, Reason.IMAGE_UNAVAILABLE.value])
    failed = Lease.objects.filter(at_fault, attempt__job=job)
    failed = failed.filter(reported_reason=F("attempt__reason"))  # who only was in the gang is not avoided
    gone = Lease.objects.filter(attempt__job=job, replaced_at__isnull=False)
    failed |= gone.exclude(reported_reason=Reason.NOT_JOINED.value)  # its gang did not grow, by nobody's fault
    rows = list(failed.values_list("node_id", "node__provider_id", "reported_reason"))
    nodes = {node_id for node_id, _, _ in rows}
    # An image, or what a shared host folder holds, is a provider's on all of its nodes. An agent's word alone tells a
    # failed fetch from an empty folder: where the job reads one, both count.
    of_provider = {Reason.IMAGE_UNAVAILABLE}
    if kind_of(job).reads_lent(job):
        of_provider |= {Reason.INPUT_UNAVAILABLE, Reason.BAD_CHECKPOINT}
    lacking = {provider_id for _, provider_id, reason in rows if reason in of_provider}
    if lacking:
        nodes |= set(Node.objects.filter(provider_id__in=lacking).values_list("pk", flat=True))
    return frozenset(nodes)


def _done_share(job: Job) -> float:
    """Part of the work that its newest checkpoint has behind it: a job that resumes is not priced as if it began."""
    checkpoint, total = Artifact.objects.resumable(job).first(), job.progress.get("steps_total")
    if checkpoint is None or checkpoint.step is None or not total:
        return 0.0
    return min(1.0, checkpoint.step / float(total))
