"""Whose report of a lease counts: that of its own node, with its own fence.

A fence is a number that rises with every lease of a device. An agent names it with whatever it sends about a lease, so
that nothing that was meant for an older lease is ever taken for a newer one. Of a sync, `running/reports.py` skips what
has another fence; requests about one lease (logs, uploads, receipts) are refused.
"""

from __future__ import annotations

from uuid import UUID

from jobs.errors import LeaseNotFound, LeaseOver, StaleFence
from jobs.models import Lease
from jobs.states import LEASE_LIVE
from marketplace.nodes.models import Node


def require_lease(node: Node, lease_id: UUID) -> Lease:
    """The lease of this node; raises LeaseNotFound for another node's, as for one that is nobody's."""
    lease = Lease.objects.select_related("attempt__job", "node").filter(pk=lease_id, node_id=node.pk).first()
    if lease is None:
        raise LeaseNotFound()
    return lease


def require_live(lease_id: UUID, *, fence: int) -> Lease:
    """The lease as it is now; raises StaleFence, or LeaseOver where it has ended."""
    lease = Lease.objects.select_related("attempt__job").get(pk=lease_id)
    require_fence(lease, fence)
    if lease.state not in LEASE_LIVE:
        raise LeaseOver()
    return lease


def require_fence(lease: Lease, fence: int) -> None:
    """Raise StaleFence where `fence` is not the lease's."""
    if not has_fence(lease, fence):
        raise StaleFence(fence=lease.fence, given=fence)


def has_fence(lease: Lease, fence: int) -> bool:
    """Whether `fence` is the lease's; for reports: a stale one is skipped, and the rest of its message counts."""
    return lease.fence == fence
