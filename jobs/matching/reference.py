"""The price on which a quote's ceiling may rest besides the chosen one's: not that of one provider.

Who asks for dust and goes away would leave the job below every other price; who asks for a fortune would be the only
one left for it. So only providers with a record count, and of the best places of the first three of them the second
cheapest price is the reference: neither one cheap nor one dear provider decides. Without two of them there is none.
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
    """Micro-USD per device and hour; None where fewer than two providers with a record could take it."""
    found = places_of(demand)(demand, snapshot, screen(demand, snapshot).slots).found[:PLACES_SEEN_MAX]
    by_provider: dict[object, int] = {}
    for place in found:
        if not _has_record(place, snapshot):
            continue
        price = max(snapshot.prices_usd_micros[slot.row] for slot in place.slots)
        by_provider.setdefault(snapshot.provider_ids[place.slots[0].row], price)
        if len(by_provider) == PROVIDERS:
            break
    cheapest_first = sorted(by_provider.values())
    return cheapest_first[1] if len(cheapest_first) > 1 else None


def _has_record(place: Place, snapshot: FleetSnapshot) -> bool:
    return all(snapshot.successes[slot.row] >= RECORD_SUCCESSES_MIN for slot in place.slots)
