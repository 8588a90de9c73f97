"""What is kept for a job that waits: one place, the one that needs the fewest devices more, for a bounded time.

1  Of every organisation the first job that fits somewhere and waits has one place kept; no other job has.
2  The place that needs the fewest devices more is kept. Nobody else takes what becomes free there meanwhile, so
   that the job needs fewer and fewer, and backfill does not delay it.
3  After RESERVED_SECONDS the job moves on to the place that is next, and after PLACES_TRIED of them it goes one
   turn without: a node whose program never ends is not kept idle for ever. It is still first to take what is free.
4  Beyond the first at most half of the nodes that a job could take are kept: waiting costs nothing, and many
   organisations would otherwise keep a whole market idle that others could rent meanwhile.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from jobs.matching.demand import Demand, MatchRequest
from jobs.matching.places import Places, best_gang, slots_by_fabric
from jobs.matching.score import PlacementSlot
from jobs.matching.snapshot import FleetSnapshot

RESERVED_SECONDS = 6 * 3600  # how long one place is kept for one job
PLACES_TRIED = 3  # one after the other; then one turn without
KEPT_SHARE = 2  # a half
RESERVATIONS_MAX = 100  # organisations for which places are kept in one tick


@dataclass(frozen=True, slots=True)
class Reservations:
    """What the batches before have kept in the same tick, and for whom."""

    node_ids: frozenset[UUID] = frozenset()
    organisation_ids: frozenset[UUID | None] = frozenset()

    def has_room_for(self, organisation_id: UUID | None) -> bool:
        """Whether a place may be kept for a job of this organisation."""
        return organisation_id not in self.organisation_ids and len(self.organisation_ids) < RESERVATIONS_MAX

    def joined(self, organisation_id: UUID | None, node_ids: Iterable[UUID]) -> Reservations:
        """These, and one more."""
        return Reservations(self.node_ids.union(node_ids), self.organisation_ids | {organisation_id})


class _Awaited(NamedTuple):
    """A place that is not free, in the order in which they are kept."""

    missing: int  # devices that are leased now
    number: int  # its position, best first
    slots: tuple[PlacementSlot, ...]


def place_kept(
    request: MatchRequest, snapshot: FleetSnapshot, places: Places, missing: Callable[[PlacementSlot], int | None]
) -> tuple[PlacementSlot, ...]:
    """The slots that are kept for a request that waits; none in a turn without.

    `missing` counts the devices that a slot lacks now; None: it is kept for somebody else.
    """
    awaited = (
        _singles(places, missing) if request.demand.nodes == 1 else _gangs(request.demand, snapshot, places, missing)
    )
    tried = heapq.nsmallest(PLACES_TRIED, awaited)
    waited = (snapshot.taken_at - request.queued_at).total_seconds() if request.queued_at else 0.0
    turn = int(max(0.0, waited) // RESERVED_SECONDS) % (len(tried) + 1)
    return tried[turn].slots if turn < len(tried) else ()


def _singles(places: Places, missing: Callable[[PlacementSlot], int | None]) -> Iterator[_Awaited]:
    for number, slot in enumerate(places.members):
        lacks = missing(slot)
        if lacks is not None:
            yield _Awaited(lacks, number, (slot,))


def _gangs(
    demand: Demand, snapshot: FleetSnapshot, places: Places, missing: Callable[[PlacementSlot], int | None]
) -> Iterator[_Awaited]:
    """Of each fabric the cheapest gang among the nodes that lack the fewest devices."""
    open_slots = [slot for slot in places.members if missing(slot) is not None]
    for number, members in enumerate(slots_by_fabric(snapshot, open_slots)):
        for most in sorted({missing(slot) or 0 for slot in members}):
            place, why = best_gang(demand, snapshot, [slot for slot in members if (missing(slot) or 0) <= most])
            if place is not None and why is None:
                yield _Awaited(sum(missing(slot) or 0 for slot in place.slots), number, place.slots)
                break
