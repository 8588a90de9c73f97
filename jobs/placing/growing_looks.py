"""What one look at all gangs that may grow knows: the fleet, and which nodes jobs that wait could use.

Each is read when it is first asked for, and once: so what a look costs does not grow by the gangs that it finds nothing
to do for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final
from uuid import UUID

from jobs.matching import fleet
from jobs.matching.demand import Demand
from jobs.matching.exclusion_reasons import ONLINE
from jobs.matching.fit import screen
from jobs.matching.places import places_of
from jobs.matching.reservations import Reservations
from jobs.matching.snapshot import DeviceGroup, FleetSnapshot
from jobs.models import Job
from jobs.placing.placement import request_of
from jobs.spec.kinds.registry import placed_whole
from marketplace.foundation.exclusive import log_failures

WAITING_MAX: Final = 50  # jobs that wait, of the same priority or a higher one: with more of them nothing grows


class GrowingLook:
    """One look; `reservations`: what was kept for jobs that wait."""

    def __init__(self, reservations: Reservations) -> None:
        self.reservations = reservations
        self._wanted: dict[int, frozenset[UUID]] = {}  # by priority
        self._nodes_of_jobs: dict[UUID, frozenset[UUID]] = {}
        self._nodes_of_demands: dict[Demand, frozenset[UUID]] = {}

    @cached_property
    def snapshot(self) -> FleetSnapshot:
        """The fleet."""
        return fleet.take_snapshot()

    @cached_property
    def free(self) -> set[UUID]:
        """Nodes that take leases now, kept for nobody; `take` removes some."""
        fleet_now = self.snapshot
        rows = zip(fleet_now.node_ids, fleet_now.states, fleet_now.offer_ids, fleet_now.groups, strict=True)
        found = {node for node, state, offer, groups in rows if state == ONLINE and offer and _has_free(groups)}
        return found - self.reservations.node_ids

    def take(self, node_ids: Sequence[UUID]) -> None:
        """These nodes are invited to one gang, and so to no other in this look."""
        self.free.difference_update(node_ids)

    @cached_property
    def fabric_of(self) -> dict[UUID, str]:
        """Node -> its fabric; empty: none."""
        return dict(zip(self.snapshot.node_ids, self.snapshot.fabrics, strict=True))

    def open_fabrics(self) -> frozenset[str]:
        """Fabrics with a free node."""
        return frozenset(self.fabric_of[node_id] for node_id in self.free) - {""}

    def wanted(self, priority: int) -> frozenset[UUID]:
        """Nodes on which a job of this priority or a higher one that waits could be placed, now or once they are
        free."""
        if priority not in self._wanted:
            jobs = [job for job in self._waiting if job.priority >= priority]
            is_known = len(jobs) <= WAITING_MAX
            nodes = map(self._nodes_of, jobs) if is_known else [self.snapshot.node_ids]
            self._wanted[priority] = frozenset[UUID]().union(*nodes)
        return self._wanted[priority]

    @cached_property
    def _waiting(self) -> list[Job]:
        """The jobs that wait, those of the highest priority first: one more than may be."""
        waiting = Job.objects.waiting().filter(kind__in=placed_whole(), price_halt=None, unfunded_units=None)
        return list(waiting.select_related("quote__asset")[: WAITING_MAX + 1])

    def _nodes_of(self, job: Job) -> frozenset[UUID]:
        if job.pk not in self._nodes_of_jobs:
            self._nodes_of_jobs[job.pk] = frozenset()
            with log_failures("A waiting job could not be read.", job_id=str(job.pk)):
                self._nodes_of_jobs[job.pk] = self._nodes_for(request_of(job).demand)
        return self._nodes_of_jobs[job.pk]

    def _nodes_for(self, demand: Demand) -> frozenset[UUID]:
        if demand not in self._nodes_of_demands:
            slots = screen(demand, self.snapshot).slots
            places = places_of(demand)(demand, self.snapshot, slots)
            rows = [slot.row for slot in slots if slot.row not in places.excluded] if places.found else []
            self._nodes_of_demands[demand] = frozenset(self.snapshot.node_ids[row] for row in rows)
        return self._nodes_of_demands[demand]


def _has_free(groups: Sequence[DeviceGroup]) -> bool:
    return any(group.free for group in groups)
