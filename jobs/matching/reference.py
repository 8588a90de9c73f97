"""The price on which a quote's ceiling rests: not that of one provider, who may ask for dust and be gone.

The best place of each of the first PROVIDERS providers counts, those with a record before those without; the dearest
of these prices is the reference. So one provider, with however many nodes, cannot make a ceiling under which nothing
else is left.
"""

from __future__ import annotations

from jobs.matching.demand import Demand
from jobs.matching.fit import screen
from jobs.matching.places import Place, places_of
from jobs.matching.snapshot import FleetSnapshot

PROVIDERS = 3
RECORD_SUCCESSES_MIN = 3  # attempts that each node of a place has brought to their end
PLACES_SEEN_MAX = 2_000  # best first: a quote has no time for more


def reference_price(demand: Demand, snapshot: FleetSnapshot) -> int | None:
    """Micro-USD per device and hour; None where the demand fits nowhere."""
    found = places_of(demand)(demand, snapshot, screen(demand, snapshot).slots).found[:PLACES_SEEN_MAX]
    by_provider: dict[object, int] = {}
    for place in sorted(found, key=lambda place: not _has_record(place, snapshot)):  # stable: the best stays first
        price = max(snapshot.prices_usd_micros[slot.row] for slot in place.slots)
        by_provider.setdefault(snapshot.provider_ids[place.slots[0].row], price)
        if len(by_provider) == PROVIDERS:
            break
    return max(by_provider.values(), default=None)


def _has_record(place: Place, snapshot: FleetSnapshot) -> bool:
    return all(snapshot.successes[slot.row] >= RECORD_SUCCESSES_MIN for slot in place.slots)
