"""Give the gangs that lost nodes other ones: the same attempt goes on, with the leases that it still has.

What a lost lease may still cost is what the one in its place may. Where nothing fits within generations.REPLACE_SECONDS
the attempt ends, and the job is placed anew as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from django.db import transaction

from jobs import lifecycle
from jobs.errors import AssetTooCoarse, DeviceTaken, NoGangPort
from jobs.leases import leasing
from jobs.leases.gangs import next_port
from jobs.matching import fleet
from jobs.matching.demand import Demand, MatchRequest
from jobs.matching.match import Placement, match
from jobs.matching.snapshot import FleetSnapshot
from jobs.models import Attempt, Lease
from jobs.placing.placement import request_of, reserve_slot
from jobs.pricing.price_locks import price_of
from jobs.running import generations, reports
from marketplace.foundation.exclusive import log_failures
from marketplace.nodes.wake import wake_nodes
from provider_agent.protocol import charge

ATTEMPTS_MAX = 100  # of one look

log = logging.getLogger(__name__)


def replace_lost() -> int:
    """Replace the lost nodes of every attempt that waits for others; returns of how many."""
    waiting = Attempt.objects.live().filter(broken_at__isnull=False).order_by("broken_at")
    replaced = 0
    for attempt_id in list(waiting.values_list("pk", flat=True)[:ATTEMPTS_MAX]):
        with log_failures("A lost node could not be replaced.", attempt_id=str(attempt_id)):
            replaced += _replace(attempt_id)
    return replaced


def _replace(attempt_id: UUID) -> bool:
    attempt = Attempt.objects.select_related("job__quote__asset").get(pk=attempt_id)
    lost, snapshot = generations.lost_leases(attempt), fleet.take_snapshot()
    if not lost:
        return False
    request = request_of(attempt.job)
    nodes = attempt.leases.members().count()
    mine = set(attempt.leases.values_list("node_id", flat=True))  # who was of it before is not taken again
    demand = _demand(request.demand, lost, near=near_nodes(attempt, snapshot, mine=mine), nodes=nodes)
    found = match([MatchRequest(request.key, demand)], snapshot).placements.get(request.key)
    if found is None:
        return False
    try:
        with transaction.atomic():
            return _take(attempt_id, found)
    except (AssetTooCoarse, DeviceTaken, NoGangPort) as error:
        log.info("A lost node was not replaced yet: %s", error, extra={"attempt_id": str(attempt_id)})
        fleet.forget_supply()
        return False


def _demand(whole: Demand, lost: Sequence[Lease], *, near: frozenset[UUID], nodes: int) -> Demand:
    """Nodes in the place of the lost ones: equal devices, which do their share of what is left for `nodes`."""
    kinds = {device.kind for lease in lost for device in lease.devices.all()}
    return replace(
        whole,
        nodes=len(lost),
        kind=kinds.pop() if len(kinds) == 1 else whole.kind,
        cap_usd_micros=sum(lease.cap_usd_micros - _cost_usd_micros(lease) for lease in lost),
        work_flops=whole.work_flops and whole.work_flops * len(lost) / nodes,
        only_nodes=near,
        runtime_features=whole.runtime_features | {generations.FEATURE},
    )


def _cost_usd_micros(lease: Lease) -> int:
    """What a lost lease costs at most, before its end has frozen that."""
    return min(charge(lease.rate_usd_micros_per_hour, lease.paid_of(lease.observed_ms)), lease.cap_usd_micros)


def near_nodes(attempt: Attempt, snapshot: FleetSnapshot, *, mine: set[UUID]) -> frozenset[UUID]:
    """The nodes that reach all that is left of the gang, in the same way, but for these."""
    rest = set(attempt.leases.members().values_list("node_id", flat=True)) - {
        lease.node_id for lease in generations.lost_leases(attempt)
    }
    fabrics = {fabric for node, fabric in zip(snapshot.node_ids, snapshot.fabrics, strict=True) if node in rest}
    if len(fabrics) != 1 or "" in fabrics:
        return frozenset()
    return frozenset(
        node
        for node, fabric in zip(snapshot.node_ids, snapshot.fabrics, strict=True)
        if fabric in fabrics and node not in mine
    )


def _take(attempt_id: UUID, found: Placement) -> bool:
    job = lifecycle.lock(Attempt.objects.values_list("job_id", flat=True).get(pk=attempt_id))
    attempt = Attempt.objects.select_related("job").get(pk=attempt_id)
    if not generations.waits_for_others(job, attempt):
        return False
    lost = generations.lost_leases(attempt)
    if len(lost) != len(found.slots) or not all(reports.is_drained(lease) for lease in lost):
        return False
    rest = [lease.node_id for lease in attempt.leases.members()]
    port = next_port(attempt, [*rest, *(slot.node_id for slot in found.slots)])
    generations.begin(job, attempt, lost, master_port=port)
    for before, slot in zip(lost, found.slots, strict=True):
        before.refresh_from_db()
        rate = slot.price_usd_micros * len(slot.device_ids)
        price = price_of(job)
        reserve_slot(
            attempt,
            slot,
            before.node_rank,
            leasing.LeasePrice(
                price_usd_micros=slot.price_usd_micros,
                cap_usd_micros=before.cap_usd_micros - (before.charge_usd_micros or 0),
                asset=before.asset,
                rate_units_per_hour=price.payment.units_down(rate),
                cap_units=int(before.cap_units - (before.charge_units or 0)),
                lock=price.lock,
            ),
        )
    wake_nodes(list(attempt.leases.values_list("node_id", flat=True)))
    return True
