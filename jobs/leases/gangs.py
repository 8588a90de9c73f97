"""The members of a gang and their addresses, as each member's assignment lists the others."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db import connection

from jobs.errors import NoGangPort
from jobs.models import Attempt, Lease
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


def gang_place(lease: Lease) -> GangPlace:
    """A lease's place in its gang. Where every member's node makes the same overlay, with the members by rank."""
    attempt = lease.attempt
    nodes = [each.node for each in attempt.leases.live().select_related("node").order_by("node_rank")]
    place = GangPlace(
        nodes=len(nodes),
        node_rank=lease.node_rank,
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
