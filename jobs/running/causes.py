"""Of the bad ends of one attempt's leases: which came first in truth, and which only followed from it.

A rank whose peer is lost dies of it, and its node reports that before the peer is missed. So an end counts from when
its lease was last seen running, not from when it was reported; and an abort, by which collectives end a rank that lost
its peer, comes behind every other end.

    blame_checkpoint  no memory to load a checkpoint: its failure, not the customer's
    first_cause       the end that brought the others down with it
    clear_followers   ends that only followed from it
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from jobs.kinds.believing import SIGNAL_CODE_BASE
from jobs.models import Attempt, Job, Lease
from marketplace.foundation import clock
from provider_agent.protocol import MESSAGE_CHARACTERS_MAX, REASONS, Reason
from runtimes.contract import ExitCode

ABORTED: Final = SIGNAL_CODE_BASE + signal.SIGABRT


def blame_checkpoint(attempt: Attempt, broken: Sequence[Lease]) -> None:
    """Let an attempt that had no memory to load its checkpoint count as one that could not resume.

    Whoever saved a checkpoint can make it take any amount, and an attempt before had memory for the configuration: so
    the customer is not to blame. Call it when the attempt's events are here, with the job's row locked.
    """
    if attempt.resume_artifact_id is None or attempt.job.spec.get("command"):
        return
    progress = Job.objects.values_list("progress", flat=True).get(pk=attempt.job_id)
    is_of_it = progress.get("attempt") == attempt.number
    if attempt.generation and attempt.resume_artifact is not None:
        # What came before was loaded by the generation before.
        is_of_it = is_of_it and progress.get("resumed_from") == attempt.resume_artifact.step
    if is_of_it and progress.keys() & {"resumed_from", "step"}:
        return  # it had loaded it
    for lease in broken:
        if lease.reported_reason == Reason.OUT_OF_MEMORY:
            _count_as(lease, Reason.BAD_CHECKPOINT, "it had not loaded its checkpoint")


def first_cause(broken: Sequence[Lease]) -> Lease:
    """The lease whose bad end brought the others down with it."""
    return min(broken, key=_order)


def is_aborted(lease: Lease) -> bool:
    """Whether our own runtime ended because it lost a peer: by its word, or by SIGABRT."""
    if lease.attempt.job.spec.get("command"):
        return False
    is_by_word = lease.reported_reason == Reason.INTERNAL and lease.exit_code == ExitCode.LOST_PEER
    return is_by_word or (lease.reported_reason == Reason.PROCESS_VANISHED and lease.exit_code == ABORTED)


def clear_followers(broken: Sequence[Lease], cause: Lease) -> None:
    """A node whose rank only aborted when its peer was lost broke nothing: neither failure nor avoidance is for it."""
    for lease in broken:
        if lease.pk == cause.pk or not is_aborted(lease):
            continue
        _count_as(lease, Reason.GANG_BROKEN, "another node broke the attempt")


def _count_as(lease: Lease, reason: Reason, why: str) -> None:
    message = f"The node reported {lease.reported_reason}; {why}. {lease.reported_message}"
    lease.reported_reason, lease.reported_message = reason.value, message[:MESSAGE_CHARACTERS_MAX]
    lease.reported_state = REASONS[reason].state.value
    lease.save(update_fields=["reported_reason", "reported_state", "reported_message"])


def _order(lease: Lease) -> tuple[bool, bool, datetime]:
    """Being stopped for another's sake names nothing."""
    reported_at = lease.reported_at or clock.now()
    seen_until = min(reported_at, lease.observed_until or reported_at)
    return lease.reported_reason == Reason.GANG_BROKEN, is_aborted(lease), seen_until
