"""Generations of a gang's attempt: a lost node is replaced, and the leases of the others go on.

    waits_for_others   whether an attempt that lost nodes waits for others in their place; asked by reports.conclude
    lost_leases        the leases to replace, once nothing more is to come of them
    begin              the next generation: the lost leases end, and the attempt goes on from its newest checkpoint
    close_unpaid       all of a generation runs: from now on the leases are paid again

What the others did after the checkpoint is done again, and until the new generation runs they only wait: neither is
paid (`Lease.paid_of`), as it is not where a whole attempt ends by the fault of one node.

Only our own training has a launcher that stays. A contract pays receipts alone, and of those no part: its jobs begin
another attempt, as all others do where no other node is found within REPLACE_SECONDS.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from jobs.artifacts.prune import abandon
from jobs.leases import leasing
from jobs.models import Artifact, ArtifactPart, Attempt, Job, Lease
from jobs.states import ArtifactState, LeaseState
from marketplace.foundation import clock
from marketplace.foundation.models import Event
from provider_agent.protocol import ATTEMPT_ENDS, REASONS, AttemptState, Fault, Reason

REPLACE_SECONDS: Final = 30  # the launchers of the others wait for 75, part of which it takes to miss a node
GENERATIONS_MAX: Final = 1000  # of one attempt
FEATURE: Final = "generations"  # of an agent that knows them
REPLACEABLE: Final = frozenset(
    {
        Reason.NODE_SILENT,
        Reason.PROCESS_VANISHED,
        Reason.LEASE_EXPIRED,
        Reason.EXECUTOR_FAILED,
        Reason.DEVICE_FAILED,
        Reason.NODE_DRAINED,
        Reason.NODE_QUARANTINED,
        Reason.NEVER_STARTED,
        Reason.INPUT_UNAVAILABLE,
    }
)


def waits_for_others(job: Job, attempt: Attempt) -> bool:
    """Whether a live attempt of a locked job has lost some of its nodes, and waits for others in their place.

    The first time it is asked the waiting begins.
    """
    if not _may_replace(job, attempt):
        return False
    if attempt.broken_at is None:
        attempt.broken_at = clock.now()
        attempt.save(update_fields=["broken_at"])
    return clock.now() - attempt.broken_at <= timedelta(seconds=REPLACE_SECONDS)


def lost_leases(attempt: Attempt) -> list[Lease]:
    """The live leases whose nodes are lost, by rank."""
    return list(attempt.leases.live().filter(reported_state__in=ATTEMPT_ENDS).order_by("node_rank"))


def begin(job: Job, attempt: Attempt, lost: Sequence[Lease], *, master_port: int) -> None:
    """End the lost leases of a locked job's attempt, and let the rest go on from its newest checkpoint.

    Call it in the transaction that reserves the leases which take their places.
    """
    resume = Artifact.objects.resumable(job).first()
    for lease in lost:
        reason = Reason(lease.reported_reason)
        leasing.end_lease(lease, REASONS[reason].billable, reason=reason)
        Lease.objects.filter(pk=lease.pk).update(replaced_at=clock.now())
    attempt.generation += 1
    attempt.broken_at, attempt.resume_artifact, attempt.master_port = None, resume, master_port
    attempt.save(update_fields=["generation", "broken_at", "resume_artifact", "master_port"])
    for artifact in Artifact.objects.filter(attempt=attempt, kind="checkpoint", state=ArtifactState.UPLOADING):
        abandon(artifact, reason="another_generation")
    saved = dict(ArtifactPart.objects.filter(artifact=resume).values_list("lease_id", "billable_ms"))
    for lease in attempt.leases.live():
        if not any(end is None for _, end in lease.unpaid):  # else the generation before never ran
            lease.unpaid = [*lease.unpaid, [saved.get(lease.pk, 0), None]]
            lease.save(update_fields=["unpaid"])
    Event.objects.create(
        subject_kind="attempt",
        subject_id=attempt.pk,
        from_state=attempt.state,
        to_state=attempt.state,
        reason=lost[0].reported_reason,
        data={
            "generation": attempt.generation,
            "lost_nodes": [str(lease.node_id) for lease in lost],
            "resumed_step": resume.step if resume else 0,
        },
    )


def close_unpaid(attempt: Attempt) -> None:
    """Pay the leases of a locked job's attempt again, where all of them run."""
    leases = list(attempt.leases.live())
    if any(lease.reported_state != AttemptState.RUNNING for lease in leases):
        return
    for lease in leases:
        if any(end is None for _, end in lease.unpaid):
            lease.unpaid = [[start, lease.observed_ms if end is None else end] for start, end in lease.unpaid]
            lease.save(update_fields=["unpaid"])


def _may_replace(job: Job, attempt: Attempt) -> bool:
    if job.kind != "train" or job.spec.get("command") or job.is_escrow or job.cancel_requested_at is not None:
        return False
    if attempt.state != AttemptState.RUNNING or attempt.generation >= GENERATIONS_MAX:
        return False
    resume = Artifact.objects.resumable(job).first()
    if resume is None:
        return False  # another attempt loses no more
    if attempt.generation and attempt.resume_artifact_id == resume.pk:
        return False  # no progress since the last one was replaced: attempts are counted
    leases = list(attempt.leases.live().select_related("node"))
    lost = [lease for lease in leases if lease.reported_state in ATTEMPT_ENDS]
    rest = [lease for lease in leases if lease.reported_state not in ATTEMPT_ENDS]
    if not lost or not rest or any(not _is_replaceable(lease) for lease in lost):
        return False
    return all(_goes_on(lease) for lease in rest)


def _is_replaceable(lease: Lease) -> bool:
    """Whether another node may take the lost one's place: it is not the customer's doing, and no checkpoint's."""
    reason = Reason(lease.reported_reason)
    return reason in REPLACEABLE and REASONS[reason].fault in {Fault.PROVIDER, Fault.NETWORK}


def _goes_on(lease: Lease) -> bool:
    """Whether the node's program runs, is not to stop, and its agent can tell it of another generation."""
    features = lease.node.facts.get("runtime_features") or []
    is_up = lease.state == LeaseState.ACTIVE and lease.reported_state == AttemptState.RUNNING
    return is_up and not lease.stop_reason and FEATURE in features
