"""What requests cost to the millionth of a micro-dollar: whole micro-dollars are charged, the rest is carried on.

A price is micro-USD for a million tokens, so tokens x price is an exact number of pico-dollars. Rounded for each
request, fifty tokens of a cheap model would be free however often they are asked for; here a key's requests to an
endpoint cost, in sum, what their tokens cost in sum, rounded down once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from uuid import UUID

from django.db.models import Q

from jobs.endpoints.usage_books import Booked
from jobs.models import UsageRemainder
from jobs.models.usage import PICOS_PER_MICRO


def carry(booked: Sequence[Booked]) -> list[Booked]:
    """The rows with their costs, in their order; what is left over is kept for the next.

    In the caller's transaction, which holds the keys' locks: of two gateways one comes after the other.
    """
    pairs = sorted({(each.row.key_id, each.row.endpoint_id) for each in booked})
    if not pairs:
        return []
    before = _read(pairs)
    left, priced = dict(before), []
    for each in booked:
        pair = (each.row.key_id, each.row.endpoint_id)
        cost, left[pair] = divmod(left.get(pair, 0) + each.picos, PICOS_PER_MICRO)
        priced.append(replace(each, cost_usd_micros=cost))
    changed = [(pair, picos) for pair, picos in left.items() if picos != before.get(pair, 0)]
    UsageRemainder.objects.bulk_create(
        [
            UsageRemainder(key_id=key_id, endpoint_id=endpoint_id, picos=picos)
            for (key_id, endpoint_id), picos in changed
        ],
        update_conflicts=True,
        unique_fields=["key_id", "endpoint_id"],
        update_fields=["picos"],
    )
    return priced


def _read(pairs: Sequence[tuple[UUID, UUID]]) -> dict[tuple[UUID, UUID], int]:
    named = reduce(or_, [Q(key_id=key_id, endpoint_id=endpoint_id) for key_id, endpoint_id in pairs])
    rows = UsageRemainder.objects.filter(named)
    return {
        (key_id, endpoint_id): picos
        for key_id, endpoint_id, picos in rows.values_list("key_id", "endpoint_id", "picos")
    }
