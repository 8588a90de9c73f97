"""Place a batch of waiting jobs on a snapshot: all or nothing for each, cheapest to complete, in the queue's order.

    1. Order: priority, then whose turn it is, then who came first.
    2. Equal demands are one class: screened and priced once.
    3. A job takes the best place whose devices are free, counting what this batch took before.
    4. A job that fits somewhere but finds it busy may have one place kept for it (reservations.py). A later job goes
       ahead on all others. So backfill does not delay who is first, and who is first does not stop the market.

The database decides when leases are written; a job that loses a device there is matched with a fresh snapshot.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from jobs.matching.demand import Demand, MatchRequest
from jobs.matching.exclusion_reasons import Why
from jobs.matching.explain import exclusions_of, waiting_message
from jobs.matching.fit import Screening, screen
from jobs.matching.places import Place, Places, best_gang, places_of, slots_by_fabric
from jobs.matching.reservations import KEPT_SHARE, Reservations, place_kept
from jobs.matching.score import Estimate, PlacementSlot
from jobs.matching.snapshot import FleetSnapshot
from jobs.wire import Exclusion

_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Policy:
    """The operator's choices. `has_backfill`: whether a job may go ahead of an older one that waits."""

    has_backfill: bool = True


class SlotTaken(NamedTuple):
    """One node's part of a placement; the position in the list is the node's rank."""

    node_id: UUID
    offer_id: UUID
    device_ids: tuple[UUID, ...]
    price_usd_micros: int  # per device and hour


class Placement(NamedTuple):
    """Where one job goes, whole."""

    key: str
    slots: tuple[SlotTaken, ...]
    estimate: Estimate


class Waiting(NamedTuple):
    """Why one job is not placed now. `is_possible`: it fits somewhere, and waits for devices to become free."""

    key: str
    is_possible: bool
    exclusions: list[Exclusion]
    message: str


@dataclass(frozen=True, slots=True)
class MatchResult:
    """Every request of the batch once: in `placements`, or in `reasons`; and what is kept for those that wait.

    `is_cut`: the time was over before the last ones, which are in neither.
    """

    placements: dict[str, Placement]
    reasons: dict[str, Waiting]
    reservations: Reservations
    is_cut: bool = False


def _never() -> bool:
    return False


def match(
    requests: Iterable[MatchRequest],
    snapshot: FleetSnapshot,
    policy: Policy | None = None,
    reservations: Reservations | None = None,
    is_late: Callable[[], bool] = _never,
) -> MatchResult:
    """Placements and reasons for a whole batch. Never places where it does not fit, nor two jobs on one device.

    `reservations`: what the batches before it in the same tick have kept. `is_late` is asked before each request but
    the first: one demand for a large gang takes as long as hundreds of others.
    """
    policy = policy or Policy()
    state = _MatchingState(snapshot, reservations or Reservations())
    classes: dict[Demand, _DemandClass] = {}
    placements: dict[str, Placement] = {}
    reasons: dict[str, Waiting] = {}
    is_closed = False  # without backfill, once somebody waits
    is_cut = False
    for position, request in enumerate(sorted(requests, key=_order)):
        if position and is_late():
            is_cut = True
            break
        demand_class = classes.get(request.demand)
        if demand_class is None:
            demand_class = classes[request.demand] = _DemandClass(request.demand, snapshot)
        place = None if is_closed and demand_class.is_possible else demand_class.next_place(state)
        if place is not None:
            placements[request.key] = state.take(request, place)
            continue
        reasons[request.key] = demand_class.reason(request.key, state)
        if demand_class.is_possible:
            state.reserve(request, demand_class.places)
            is_closed = is_closed or not policy.has_backfill
    return MatchResult(placements, reasons, state.reservations, is_cut)


def _order(request: MatchRequest) -> tuple[int, int, datetime]:
    return -request.priority, request.turn, request.queued_at or _LAST


class _MatchingState:
    """What this batch has taken and reserved so far; both only grow."""

    def __init__(self, snapshot: FleetSnapshot, reservations: Reservations) -> None:
        self.snapshot = snapshot
        self.reservations = reservations
        self.taken: Counter[tuple[int, int]] = Counter()  # (row, group) -> from the front of its free ones
        self.reserved: set[int] = set()
        if reservations.node_ids:
            self.reserved.update(row for row, id in enumerate(snapshot.node_ids) if id in reservations.node_ids)

    def has_free(self, slot: PlacementSlot, devices: int) -> bool:
        return self._free(slot) >= devices

    def reserve(self, request: MatchRequest, places: Places) -> None:
        """Keep a place for the first job of its organisation that waits, where not too much is kept already."""
        before = sum(slot.row in self.reserved for slot in places.members)
        is_much = before > 0 and (before + request.demand.nodes) * KEPT_SHARE > len(places.members)
        if is_much or not self.reservations.has_room_for(request.organisation_id):
            return

        def missing(slot: PlacementSlot) -> int | None:
            return None if slot.row in self.reserved else max(0, request.demand.devices - self._free(slot))

        rows = [slot.row for slot in place_kept(request, self.snapshot, places, missing)]
        self.reserved.update(rows)
        kept = (self.snapshot.node_ids[row] for row in rows)
        self.reservations = self.reservations.joined(request.organisation_id, kept)

    def _free(self, slot: PlacementSlot) -> int:
        return len(self.snapshot.groups[slot.row][slot.group].free) - self.taken[slot.row, slot.group]

    def take(self, request: MatchRequest, place: Place) -> Placement:
        return Placement(
            request.key, tuple(self._take_slot(slot, request.demand.devices) for slot in place.slots), place.estimate
        )

    def _take_slot(self, slot: PlacementSlot, devices: int) -> SlotTaken:
        first = self.taken[slot.row, slot.group]
        self.taken[slot.row, slot.group] += devices
        offer_id = self.snapshot.offer_ids[slot.row]
        assert offer_id is not None, "a node without an offer has no slot"  # noqa: S101 - a programmer's mistake
        return SlotTaken(
            self.snapshot.node_ids[slot.row],
            offer_id,
            self.snapshot.groups[slot.row][slot.group].free[first : first + devices],
            self.snapshot.prices_usd_micros[slot.row],
        )


class _DemandClass:
    """All requests with one demand: what they share, and how far down the list of places they have come."""

    def __init__(self, demand: Demand, snapshot: FleetSnapshot) -> None:
        self._demand = demand
        self._snapshot = snapshot
        self._screening: Screening = screen(demand, snapshot)
        self.places: Places = places_of(demand)(demand, snapshot, self._screening.slots)
        self._next = 0
        self._gangs: list[tuple[tuple[bool, float, float, tuple[int, ...]], Place, list[PlacementSlot]]] | None = None
        self._is_exhausted = not self.places.found
        self._reason: tuple[list[Exclusion], str] | None = None
        left = [slot.row for slot in self._screening.slots if slot.row not in self.places.excluded]
        self._could_take: Sequence[int] = left

    @property
    def is_possible(self) -> bool:
        """Whether it fits somewhere once devices are free."""
        return bool(self.places.found)

    def next_place(self, state: _MatchingState) -> Place | None:
        """The best place whose devices are free and not reserved. Once there is none, there is none in this batch."""
        if self._is_exhausted:
            return None
        place = self._next_single(state) if self._demand.nodes == 1 else self._next_gang(state)
        self._is_exhausted = place is None
        return place

    def reason(self, key: str, state: _MatchingState) -> Waiting:
        """Why a request of this class waits; the same for all of them that wait in one batch."""
        if self._reason is None:
            excluded = self._screening.excluded + Counter(self.places.excluded.values())
            excluded.update(Why.RESERVED if row in state.reserved else Why.BUSY for row in self._could_take)
            exclusions = exclusions_of(self._demand, excluded)
            self._reason = exclusions, waiting_message(exclusions, nodes=len(self._snapshot))
        return Waiting(key, self.is_possible, *self._reason)

    def _next_single(self, state: _MatchingState) -> Place | None:
        found = self.places.found
        while self._next < len(found):
            place = found[self._next]
            if self._is_free(place.slots[0], state):
                return place
            self._next += 1
        return None

    def _next_gang(self, state: _MatchingState) -> Place | None:
        """The cheapest gang that is free. Slots only get fewer, so a fabric is looked at again only once it leads."""
        if self._gangs is None:
            fabrics = slots_by_fabric(self._snapshot, self._screening.slots)
            members_of = {slot.row: members for members in fabrics for slot in members}
            self._gangs = [(place.rank, place, members_of[place.slots[0].row]) for place in self.places.found]
        while self._gangs:
            _, place, members = self._gangs[0]
            if all(self._is_free(slot, state) for slot in place.slots):
                return place
            left = [slot for slot in members if self._is_free(slot, state)]
            better = self._best_of(left)
            if better is None:
                heapq.heappop(self._gangs)
            else:
                heapq.heapreplace(self._gangs, (better.rank, better, left))
        return None

    def _best_of(self, members: list[PlacementSlot]) -> Place | None:
        place, why = best_gang(self._demand, self._snapshot, members)
        return place if why is None else None

    def _is_free(self, slot: PlacementSlot, state: _MatchingState) -> bool:
        return slot.row not in state.reserved and state.has_free(slot, self._demand.devices)
