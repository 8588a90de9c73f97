"""Of the bad ends of one attempt's leases: which came first in truth, and which only followed from it.

A rank whose peer is lost dies of it, and its node reports that before the peer is missed. So an end counts from when
its lease was last seen running, not from when it was reported; and an abort, by which collectives end a rank that lost
its peer, comes behind every other end.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from jobs.kinds.believing import SIGNAL_CODE_BASE
from jobs.models import Lease
from marketplace.foundation import clock
from provider_agent.protocol import MESSAGE_CHARACTERS_MAX, REASONS, Reason

ABORTED: Final = SIGNAL_CODE_BASE + signal.SIGABRT


def first_cause(broken: Sequence[Lease]) -> Lease:
    """The lease whose bad end brought the others down with it."""
    return min(broken, key=_order)


def is_aborted(lease: Lease) -> bool:
    """Whether our own runtime was ended by SIGABRT."""
    return lease.reported_reason == Reason.PROCESS_VANISHED and lease.exit_code == ABORTED


def clear_followers(broken: Sequence[Lease], cause: Lease) -> None:
    """A node whose rank only aborted when its peer was lost broke nothing: neither failure nor avoidance is for it."""
    for lease in broken:
        if lease.pk == cause.pk or not is_aborted(lease):
            continue
        message = f"The node reported {lease.reported_reason}; another node broke the attempt. {lease.reported_message}"
        lease.reported_reason, lease.reported_message = Reason.GANG_BROKEN.value, message[:MESSAGE_CHARACTERS_MAX]
        lease.reported_state = REASONS[Reason.GANG_BROKEN].state.value
        lease.save(update_fields=["reported_reason", "reported_state", "reported_message"])


def _order(lease: Lease) -> tuple[bool, bool, datetime]:
    """Being stopped for another's sake names nothing."""
    reported_at = lease.reported_at or clock.now()
    seen_until = min(reported_at, lease.observed_until or reported_at)
    return lease.reported_reason == Reason.GANG_BROKEN, is_aborted(lease), seen_until
