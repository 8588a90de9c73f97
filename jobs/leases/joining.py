"""Leases that wait to join a gang which grows: until they have, the attempt does not depend on them.

Their programs have started and wait; they are not metered, and their caps are nothing. What becomes of one before it
has joined ends the growth, and never the attempt.
"""

from __future__ import annotations

from django.db.models import F

from jobs.leases import leasing, sharing, unpaid
from jobs.models import Attempt, Lease
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from marketplace.nodes.wake import wake_nodes
from provider_agent.protocol import ATTEMPT_ENDS, REASONS, Billable, Fault, Reason

_CHANGED = (
    *("reported_state", "reported_reason", "reported_message", "replaced_at"),
    *("log_bytes_final", "event_bytes_final", "receipt_seq_final"),
)


def give_up(attempt: Attempt) -> int:
    """End all leases that wait to join an attempt of a locked job: its gang stays as it is. Returns how many.

    They cost nothing. One that ended by itself keeps its reason, and its node the mark for it, but where its provider
    took it back; the others end by nobody's fault.
    """
    # By node, so that two growths that are given up never wait for each other's rows.
    leases, now = list(attempt.leases.joining().select_related("attempt__job").order_by("node_id")), clock.now()
    for lease in leases:
        if lease.reported_state not in ATTEMPT_ENDS:
            outcome = REASONS[Reason.NOT_JOINED]
            lease.reported_state, lease.reported_reason = outcome.state.value, Reason.NOT_JOINED.value
            lease.reported_message = "The gang did not grow after all."
        reason = Reason(lease.reported_reason)
        lease.replaced_at = now  # of one try the same
        # Its last bytes are not waited for: nothing of it counts.
        lease.log_bytes_final = lease.event_bytes_final = lease.receipt_seq_final = None
        lease.save(update_fields=_CHANGED)
        leasing.end_lease(lease, Billable.NOTHING, reason=reason)
        if REASONS[reason].fault == Fault.PROVIDER and reason != Reason.NODE_DRAINED:  # who earns nothing may leave
            Node.objects.filter(pk=lease.node_id).update(failures=F("failures") + 1)
    wake_nodes([lease.node_id for lease in leases])
    return len(leases)


def is_coming(lease: Lease, attempt: Attempt) -> bool:
    """Whether a lease joined the gang in its present generation, and its program has not come up yet."""
    is_new = bool(attempt.generation) and lease.joined_generation == attempt.generation
    return is_new and lease.running_at is None


def end_growth(attempt: Attempt) -> int:
    """The training of a locked job's attempt has ended, and some who joined its gang never came up: they were never of
    it. The others trained all the time, unless another one was lost since, and are paid. Returns how many did not
    come up."""
    late = [lease for lease in attempt.leases.members() if is_coming(lease, attempt)]
    if not late:
        return 0
    members_lost = attempt.leases.filter(replaced_at__gte=attempt.grown_at, joined_generation=None, is_joining=False)
    (unpaid.close_unpaid if members_lost.exists() else unpaid.drop_unpaid)(attempt)
    Lease.objects.filter(pk__in=[lease.pk for lease in late]).update(is_joining=True, joined_generation=None)
    give_up(attempt)
    sharing.share_anew(list(attempt.leases.members()), more=sharing.left_of(late))
    return len(late)
