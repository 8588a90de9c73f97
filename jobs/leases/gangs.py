"""The members of a gang and their addresses, as each member's assignment lists the others."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db import connection

from jobs.errors import NoGangPort
from jobs.models import Attempt, Lease
from jobs.models.querysets import LeaseQuerySet
from jobs.states import LEASE_LIVE
from marketplace.nodes.fabrics.overlays import OVERLAYS, gang_kind
from marketplace.nodes.models import Node
from provider_agent.protocol import GANG_PORT_FIRST, GANG_PORTS, GangMember, GangPlace, gang_address

LOCK_PORTS = 0x536F756B  # key of the advisory lock: one transaction at a time chooses a gang's port


def choose_port(seed: int, node_ids: Iterable[UUID]) -> int:
    """A port that no live gang of these nodes has, nor one of another node at the same address; the search begins at
    `seed`. The transaction that stores the port locks it. Raises NoGangPort when all are taken.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK_PORTS])
    nodes = list(Node.objects.filter(pk__in=list(node_ids)))
    addresses = {node.fabric_address for node in nodes if node.fabric_address}
    near = Node.objects.filter(pk__in=[node.pk for node in nodes]) | Node.objects.filter(
        provider__in={node.provider_id for node in nodes}, fabric_address__in=addresses
    )
    live = Lease.objects.filter(state__in=LEASE_LIVE, node__in=near.values("pk"))
    taken = set(Attempt.objects.filter(leases__in=live).values_list("master_port", flat=True))
    for offset in range(GANG_PORTS):
        port = GANG_PORT_FIRST + (seed + offset) % GANG_PORTS
        if port not in taken:
            return port
    raise NoGangPort(ports=GANG_PORTS)


def next_port(attempt: Attempt, node_ids: Iterable[UUID]) -> int:
    """Where the ranks of an attempt's next generation meet, on these nodes; raises NoGangPort.

    With an overlay, which a lost node is no member of any more, it is the port that the gang has, and it has to be free
    on who joins. Without one it is another port, to which what is left on a lost node does not know the way.
    """
    nodes, first = list(node_ids), attempt.leases.members().order_by("node_rank").first()
    if first is None or not gang_place(first).overlay:
        return choose_port(attempt.master_port + 1, nodes)
    mine = set(attempt.leases.live().values_list("node_id", flat=True))
    if not set(nodes) - mine:
        return attempt.master_port
    if choose_port(attempt.master_port - GANG_PORT_FIRST, set(nodes) - mine) != attempt.master_port:
        raise NoGangPort(ports=GANG_PORTS)
    return attempt.master_port


def gang_of(lease: Lease) -> LeaseQuerySet:
    """The leases of a lease's gang by rank; of one that waits to join it, with all who do."""
    live = lease.attempt.leases.live() if lease.is_joining else lease.attempt.leases.members()
    return live.order_by("node_rank")


def rank_of(lease: Lease) -> int:
    """A live lease's rank among the nodes of its gang. It is its `node_rank`, by which its streams are known, as long
    as the gang has lost none with a smaller one."""
    return gang_of(lease).filter(node_rank__lt=lease.node_rank).count() if lease.node_rank else 0


def gang_place(lease: Lease) -> GangPlace:
    """A lease's place in its gang. Where every member's node makes the same overlay, with the members by rank.

    Of one that waits to join the gang it is its place there, in the gang with all who join it.
    """
    attempt = lease.attempt
    leases = list(gang_of(lease).select_related("node"))
    nodes = [each.node for each in leases]
    place = GangPlace(
        nodes=len(nodes),
        node_rank=[each.pk for each in leases].index(lease.pk) if lease in leases else lease.node_rank,
        devices_per_node=lease.device_count,
        master_address=nodes[0].fabric_address or "127.0.0.1",
        master_port=attempt.master_port,
    )
    kinds = {gang_kind(node.executor, node.facts.get("gang", ""), node.fabric_key) for node in nodes}
    if len(nodes) == 1 or kinds not in [{kind} for kind in OVERLAYS]:
        return place
    members = [
        GangMember(
            rank=rank,
            address=node.fabric_address,
            port=attempt.master_port,
            public_key=node.fabric_key,
            overlay_address=gang_address(rank),
        )
        for rank, node in enumerate(nodes)
    ]
    overlay = {"overlay": kinds.pop(), "members": members, "master_address": gang_address(0)}
    return place.model_copy(update=overlay)
