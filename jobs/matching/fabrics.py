"""Which nodes reach each other, from the links that were measured between them.

A group is grown from the node with the most good links. A node joins while it has a good link to JOIN_LINKS of the
members, or to all where they are fewer, and a failed one to none. So in a group of up to JOIN_LINKS + 1 nodes each pair
was measured; in a larger one, where not every pair is probed, each node was measured with several others and no
measured link failed. A node without a good link is in no group.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

JOIN_LINKS = 4


class Link(NamedTuple):
    """Two nodes, and whether each reached the other."""

    a: UUID
    b: UUID
    is_good: bool


def groups_of(links: Iterable[Link]) -> dict[UUID, UUID]:
    """Node -> its group, which is named by its first node; nodes in no group are left out. Independent of the order."""
    good: defaultdict[UUID, set[UUID]] = defaultdict(set)
    bad: defaultdict[UUID, set[UUID]] = defaultdict(set)
    for link in links:
        ends = good if link.is_good else bad
        ends[link.a].add(link.b)
        ends[link.b].add(link.a)
    groups: dict[UUID, UUID] = {}
    for seed in sorted(good, key=lambda node: (-len(good[node]), node)):
        if seed not in groups:
            members = _grow(seed, good, bad, taken=groups)
            if len(members) > 1:
                groups.update(dict.fromkeys(members, min(members)))
    return groups


def _grow(seed: UUID, good: dict[UUID, set[UUID]], bad: dict[UUID, set[UUID]], *, taken: dict[UUID, UUID]) -> set[UUID]:
    """All nodes that may join `seed`, those with the most links to the members first."""
    members: set[UUID] = set()
    links: Counter[UUID] = Counter()  # to members
    barred: set[UUID] = set()
    waiting = [(0, seed)]
    while waiting:
        count, node = heapq.heappop(waiting)
        is_old = -count != links[node]  # it has more links by now, and waits under them too
        if is_old or node in members or node in barred or links[node] < min(len(members), JOIN_LINKS):
            continue
        members.add(node)
        barred |= bad.get(node, set())
        for neighbour in good[node] - members:
            if neighbour not in taken:
                links[neighbour] += 1
                heapq.heappush(waiting, (-links[neighbour], neighbour))
    return members
