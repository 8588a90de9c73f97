"""A lost node becomes a retry of what it ran.

1  sweep_silent_nodes        a node that stopped beating is offline, and its leases are lost     (here)
                             sooner, those of a gang that lost a peer: suspicions.py
2  reports.lose              the attempt ends once none of its leases is left to wait for
3  lifecycle.finish_attempt  bills it, and asks the job's kind what its end means
4  kinds.retrying.next_step  RECOVERING where the reason, `attempts_max` and the deadline allow one more try
5  placing                   places a recovering job like a queued one; its next attempt resumes from a checkpoint
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from jobs.models import Lease
from jobs.running import reports, suspicions
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.nodes.watching import liveness
from provider_agent.protocol import ATTEMPT_ENDS, Reason

LOST_LEASES_MAX = 1000  # of one sweep


def sweep_silent_nodes() -> int:
    """Mark silent nodes offline and lose what they ran; returns how many leases were lost.

    Of a gang that lost a peer, those are lost, too, whose nodes did not answer. When many fall silent at once the fault
    is taken to be ours, and nothing is rescheduled.
    """
    unheard = suspicions.find_unheard()
    _lose(unheard, "The node sent no beat after another node of its gang had lost a peer.")
    return len(unheard) + _sweep_silent()


def _sweep_silent() -> int:
    now = clock.now()
    leased = set(Lease.objects.live().values_list("node_id", flat=True))
    silent = liveness.find_silent(now, leased_node_ids=leased)
    if not silent:
        return 0
    liveness.mark_offline(silent)
    leases = Lease.objects.live().filter(node_id__in=silent).exclude(reported_state__in=ATTEMPT_ENDS)
    lost = list(leases.values_list("pk", flat=True)[:LOST_LEASES_MAX])
    _lose(lost, "The node stopped answering.")
    return len(lost)


def _lose(lease_ids: Iterable[UUID], message: str) -> None:
    for lease_id in lease_ids:
        with log_failures("A silent node's lease could not be lost.", lease_id=str(lease_id)):
            reports.lose(lease_id, Reason.NODE_SILENT, message)
