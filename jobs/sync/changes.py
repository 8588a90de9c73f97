"""Finds nodes for which something was decided, whoever decided it and whether or not its wake arrived.

    node      drained, quarantined, retired: marketplace.nodes changes them and cannot wake them
    lease     given or ended: its wake is published once, and may be lost
    check     demanded or over: the same
    link      a probe of it demanded or over: the same, for both of its nodes

One query every few seconds for all nodes, over the events that `advance` writes. A transaction may commit after one
with a higher number, so each look goes back some way over events that were seen already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from uuid import UUID

from django.db.models import Max, QuerySet

from jobs.models import Lease
from jobs.states import LEASE_MACHINE
from marketplace.foundation.models import Event
from marketplace.nodes.models import Check, LinkProbe
from marketplace.nodes.states import CHECK_MACHINE, NODE_MACHINE, PROBE_MACHINE

POLL_SECONDS = 2.0
BACK = 2_000  # events
KINDS = (NODE_MACHINE.kind, LEASE_MACHINE.kind, CHECK_MACHINE.kind, PROBE_MACHINE.kind)


class NodeChanges:
    """What this process has seen of the events that concern nodes."""

    def __init__(self) -> None:
        self._newest: int | None = None
        self._seen: set[int] = set()

    def find(self) -> list[UUID] | None:
        """Nodes for which something was decided since the last look; None at the first, before which nobody looked."""
        newest = Event.objects.aggregate(newest=Max("id"))["newest"] or 0
        since = (newest if self._newest is None else self._newest) - BACK
        events = Event.objects.filter(subject_kind__in=KINDS, id__gt=since, id__lte=newest)
        found = {event_id: (kind, subject) for event_id, kind, subject in _rows(events)}
        is_first, news = self._newest is None, found.keys() - self._seen
        self._newest, self._seen = newest, set(found)
        return None if is_first else _nodes_of(found[event_id] for event_id in news)


def _rows(events: QuerySet[Event]) -> Iterable[tuple[int, str, UUID]]:
    return events.values_list("id", "subject_kind", "subject_id")


def _nodes_of(subjects: Iterable[tuple[str, UUID]]) -> list[UUID]:
    ids: defaultdict[str, set[UUID]] = defaultdict(set)
    for kind, subject in subjects:
        ids[kind].add(subject)
    nodes = ids[NODE_MACHINE.kind]
    if leases := ids[LEASE_MACHINE.kind]:
        nodes.update(Lease.objects.filter(pk__in=leases).values_list("node_id", flat=True))
    if checks := ids[CHECK_MACHINE.kind]:
        nodes.update(Check.objects.filter(pk__in=checks).values_list("node_id", flat=True))
    if probes := ids[PROBE_MACHINE.kind]:
        for pair in LinkProbe.objects.filter(pk__in=probes).values_list("link__a", "link__b"):
            nodes.update(pair)
    return list(nodes)
