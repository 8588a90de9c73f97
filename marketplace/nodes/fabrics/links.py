"""Which nodes of a fabric really reach each other: pairs are picked, both nodes measure, and both report.

    demand    a probe and its secret, for two idle nodes of one provider and one label that have addresses
    report    one from each node; the second report, or the deadline, ends the probe: link_reports.py

A label with few nodes has all its pairs probed; of a larger one each node is probed with its RING_NEIGHBOURS next
nodes in both directions, by their ids, so that the pairs grow with the nodes and not with their square. Which groups
follow from that, jobs/matching/fabrics.py decides.

Both nodes are the provider's: together they could claim any figure. The figures of a link are never more than its
provider's statement about its own network, tested for honest mistakes.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import combinations
from typing import Final, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from marketplace.foundation import clock
from marketplace.foundation.states import record_birth
from marketplace.nodes.fabrics.link_reports import live
from marketplace.nodes.models import FabricLink, LinkProbe, Node
from marketplace.nodes.models.node import suspect_before
from marketplace.nodes.states import NodeState, ProbeState
from provider_agent.protocol import (
    PROBE_PORT_FIRST,
    PROBE_PORT_LAST,
    PROBE_SECRET_BYTES,
    LinkDemand,
)

logger = logging.getLogger(__name__)

ALL_PAIRS_MAX: Final = 8  # nodes of one label; with more, each has RING_NEIGHBOURS on either side
RING_NEIGHBOURS: Final = 4
PROBES_PER_PROVIDER_MAX: Final = 4  # at once: they share its network
PROBES_PER_SWEEP_MAX: Final = 50
FRESH_SECONDS: Final = 7 * 24 * 3600  # nodes that are never idle are not probed: so long their link is believed

Pair = tuple[UUID, UUID]


class _Candidate(NamedTuple):
    id: UUID
    provider_id: UUID
    fabric: str
    is_idle: bool


def demand_due(busy_node_ids: Collection[UUID]) -> list[UUID]:
    """Demand a probe of every pair whose turn it is, as far as the limits allow; returns the nodes to wake."""
    fabrics = _fabrics(set(busy_node_ids))
    if not fabrics:
        return []
    running = Counter(live().values_list("link__a__provider_id", flat=True))
    demanded: list[UUID] = []
    for (provider_id, _), members in fabrics.items():
        idle = {member.id for member in members if member.is_idle}
        for pair in _due(members) if len(idle) > 1 else ():
            if running[provider_id] >= PROBES_PER_PROVIDER_MAX or len(demanded) >= 2 * PROBES_PER_SWEEP_MAX:
                break
            if idle.issuperset(pair) and demand(pair) is not None:
                idle.difference_update(pair)  # one probe a node at once: two would measure each other
                running[provider_id] += 1
                demanded.extend(pair)
    return demanded


def wanted_pairs(node_ids: Iterable[UUID]) -> list[Pair]:
    """Which pairs of one label's nodes are probed, near ones first; each the smaller id first."""
    ids = sorted(node_ids)
    if len(ids) <= ALL_PAIRS_MAX:
        return list(combinations(ids, 2))
    count = len(ids)
    steps = ((i, (i + step) % count) for step in range(1, RING_NEIGHBOURS + 1) for i in range(count))
    return [_ordered(ids[i], ids[j]) for i, j in steps]


def demand(pair: Pair) -> LinkProbe | None:
    """A probe of one pair; None where one of them has something else to do by now."""
    with transaction.atomic():
        nodes = list(Node.objects.select_for_update().filter(pk__in=pair).order_by("pk"))
        has_time = all(node.wanted_probe_id is None and node.wanted_check_id is None for node in nodes)
        if len(nodes) != 2 or not has_time or not _are_of_one_fabric(*nodes):
            return None
        a, b = nodes
        link, _ = FabricLink.objects.get_or_create(a=a, b=b)
        link.probes.exclude(state=ProbeState.DEMANDED).delete()  # the link holds the outcome of earlier probes
        listener, connector = random.sample(nodes, 2)
        listen_port, connect_port = _free_ports(a.provider_id)
        probe = LinkProbe.objects.create(
            link=link,
            listener=listener,
            secret=secrets.token_hex(PROBE_SECRET_BYTES),
            ports={str(listener.pk): listen_port, str(connector.pk): connect_port},
            demanded_at=clock.now(),
        )
        record_birth(probe, data={"listener_id": str(listener.pk), "dialler_id": str(connector.pk)})
        Node.objects.filter(pk__in=pair).update(wanted_probe_id=probe.pk)
    logger.info("A link is to be probed.", extra={"probe_id": str(probe.pk), "node_ids": [str(each) for each in pair]})
    return probe


def demand_of(node: Node) -> LinkDemand | None:
    """The probe that this node is wanted for, as sync sends it."""
    if node.wanted_probe_id is None:
        return None
    probe = live().filter(pk=node.wanted_probe_id).select_related("link__a", "link__b").first()
    if probe is None:
        return None
    peer = probe.link.other(node.pk)
    return LinkDemand(
        probe_id=probe.pk,
        role="listen" if probe.listener_id == node.pk else "dial",
        peer_name=peer.name,
        address=node.fabric_address,
        port=probe.ports[str(node.pk)],
        peer_address=peer.fabric_address,
        peer_port=probe.ports[str(peer.pk)],
        secret=probe.secret,
    )


def make_due(nodes: QuerySet[Node]) -> int:
    """Probe their links again as soon as they are idle; returns the number of links."""
    ids = nodes.values("pk")
    return FabricLink.objects.filter(Q(a__in=ids) | Q(b__in=ids)).update(next_probe_at=clock.now())


def links_of(node: Node) -> list[tuple[Node, FabricLink]]:
    """Each node of its fabric that it was to be measured with and that is not retired, with their link, by name."""
    ends = [(link.b, link) for link in node.links_as_a.all()]
    ends += [(link.a, link) for link in node.links_as_b.all()]
    present = [(peer, link) for peer, link in ends if peer.state != NodeState.RETIRED]
    return sorted(present, key=lambda entry: (entry[0].name, entry[0].pk))


def fresh_after(now: datetime) -> datetime:
    """What was measured before this is not believed any more."""
    return now - timedelta(seconds=FRESH_SECONDS)


# --- below


def _fabrics(busy: set[UUID]) -> dict[tuple[UUID, str], list[_Candidate]]:
    """(provider, label) -> its online nodes with an address; those that could be probed now are idle."""
    there = (
        Node.objects.filter(state=NodeState.ONLINE)
        .exclude(fabric="")
        .exclude(fabric_address="")
        .exclude(last_seen_at__lt=suspect_before(clock.now()))
        .values_list("id", "provider_id", "fabric", "wanted_check_id", "wanted_probe_id")
    )
    found: defaultdict[tuple[UUID, str], list[_Candidate]] = defaultdict(list)
    for node_id, provider_id, fabric, check_id, probe_id in there:
        is_idle = node_id not in busy and check_id is None and probe_id is None
        found[provider_id, fabric].append(_Candidate(node_id, provider_id, fabric, is_idle))
    return {key: members for key, members in found.items() if len(members) > 1}


def _due(members: Sequence[_Candidate]) -> list[Pair]:
    """The pairs whose turn it is, those that were never probed first."""
    ids = [member.id for member in members]
    rows = FabricLink.objects.filter(a__in=ids, b__in=ids).values_list("a_id", "b_id", "next_probe_at")
    turns: dict[Pair, datetime | None] = {(a, b): next_at for a, b, next_at in rows}
    now, wanted = clock.now(), wanted_pairs(ids)
    new = [pair for pair in wanted if turns.get(pair) is None]
    again = [(at, pair) for pair in wanted if (at := turns.get(pair)) is not None and at <= now]
    return new + [pair for _, pair in sorted(again)]


def _are_of_one_fabric(a: Node, b: Node) -> bool:
    is_same = (a.provider_id, a.fabric) == (b.provider_id, b.fabric)
    return is_same and bool(a.fabric and a.fabric_address and b.fabric_address)


def _free_ports(provider_id: UUID) -> tuple[int, int]:
    """Two ports that no live probe of this provider has: its nodes may share one machine."""
    given = live().filter(link__a__provider=provider_id).values_list("ports", flat=True)
    taken = {port for ports in given for port in ports.values()}
    free = [port for port in range(PROBE_PORT_FIRST, PROBE_PORT_LAST + 1) if port not in taken]
    first, second = random.sample(free, 2)
    return first, second


def _ordered(first: UUID, second: UUID) -> Pair:
    return (first, second) if first < second else (second, first)
