"""Generations of a gang's attempt: a lost node is replaced, or the gang has another size, and the other leases go on.

    waits_for_others   whether an attempt that lost nodes waits for others in their place; asked by reports.conclude
    lost_leases        the leases to replace, once nothing more is to come of them
    begin              the next generation: the lost leases end, those that wait join, and the attempt goes on from its
                       newest checkpoint
    pay_again          from now on the leases are paid again, where all of a generation runs and has gone on
    close_unpaid       the same, where a checkpoint of it shows that

What the others did after the checkpoint is done again, and until the new generation runs they only wait: neither is
paid (`Lease.paid_of`), as it is not where a whole attempt ends by the fault of one node.

Only our own training has a launcher that stays. A contract pays receipts alone, and of those no part: its jobs begin
another attempt, as all others do where no other node is found within REPLACE_SECONDS.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from django.db.models import F

from billing.charging import metering
from jobs.artifacts.prune import abandon
from jobs.kinds.registry import kind_of
from jobs.leases import joining, leasing
from jobs.models import Artifact, ArtifactPart, Attempt, Job, Lease
from jobs.running import causes
from jobs.running.run_soon import run_soon
from jobs.states import ArtifactState, LeaseState
from marketplace.foundation import clock
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from provider_agent.protocol import ATTEMPT_ENDS, REASONS, AttemptState, Billable, Fault, Reason

REPLACE_SECONDS: Final = 30  # the launchers of the others wait for 240, most of which a node may take to end
GENERATIONS_MAX: Final = 1000  # of one attempt
RECEIPT_AGE_MS_MAX: Final = 120_000
FEATURE: Final = "generations"  # of an agent that knows them
GROWN: Final = "grown"  # the reason in the event of a generation with more nodes
# How long the others are paid when a gang grows, until all of it run. They trained until then, and who joins has
# loaded its program already; who pays for longer would pay a provider for a node that never comes up.
JOIN_PAID_MS: Final = 60_000
_UP: Final = frozenset({AttemptState.RUNNING, AttemptState.SUCCEEDED})
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
        run_soon("jobs.tasks.place_jobs")
    return clock.now() - attempt.broken_at <= timedelta(seconds=REPLACE_SECONDS)


def lost_leases(attempt: Attempt) -> list[Lease]:
    """The live leases whose nodes are lost, by rank."""
    return list(attempt.leases.members().filter(reported_state__in=ATTEMPT_ENDS).order_by("node_rank"))


def begin(job: Job, attempt: Attempt, lost: Sequence[Lease], *, master_port: int, size: int | None = None) -> None:
    """End the lost leases of a locked job's attempt, and let the rest go on from its newest checkpoint; where none is
    lost, with the leases that wait to join it.

    Call it in the transaction that reserves the leases which take their places. `size`: how many nodes the gang has
    from now on, where that changes.
    """
    resume = Artifact.objects.resumable(job).first()
    rest = [lease for lease in attempt.leases.members() if lease.pk not in {each.pk for each in lost}]
    joined = [] if lost else list(attempt.leases.joining())
    coming = [lease for lease in rest if joining.is_coming(lease, attempt)]
    if lost:
        joining.give_up(attempt)  # what it was to join is another gang now
    for lease in lost:
        _end_lost(lease, attempt)
    if not attempt.generation:
        attempt.began_from = attempt.resume_artifact
    attempt.generation += 1
    attempt.broken_at = attempt.suspected_at = None
    attempt.resume_artifact, attempt.master_port = resume, master_port
    changed = ["generation", "began_from", "broken_at", "suspected_at", "resume_artifact", "master_port"]
    attempt.save(update_fields=changed)
    for lease in [*joined, *coming]:  # who was still to come up when another one was lost has still to
        lease.is_joining, lease.joined_generation = False, attempt.generation
        lease.save(update_fields=["is_joining", "joined_generation"])
    for artifact in Artifact.objects.filter(attempt=attempt, kind="checkpoint", state=ArtifactState.UPLOADING):
        abandon(artifact, reason="another_generation")
    saved = dict(ArtifactPart.objects.filter(artifact=resume).values_list("lease_id", "billable_ms"))
    for lease in rest:
        if not is_unpaid(lease):  # else the generation before never ran
            paid_until = lease.unpaid[-1][1] if lease.unpaid else 0
            # What is done again for the sake of a growth was no node's doing, and the wait for who joins is short.
            start = saved.get(lease.pk, 0) if lost else lease.observed_ms + JOIN_PAID_MS
            lease.unpaid = [*lease.unpaid, [max(start, paid_until), None, _unmetered_ms(lease)]]
            lease.save(update_fields=["unpaid"])
    Event.objects.create(
        subject_kind="attempt",
        subject_id=attempt.pk,
        from_state=attempt.state,
        to_state=attempt.state,
        reason=lost[0].reported_reason if lost else GROWN,
        data={
            "generation": attempt.generation,
            "lost_nodes": [str(lease.node_id) for lease in lost],
            "resumed_step": resume.step if resume else 0,
        }
        | ({"joined_nodes": [str(lease.node_id) for lease in joined]} if joined else {})
        | ({"shrunk_to" if lost else "grown_to": size} if size else {}),
    )


def _end_lost(lease: Lease, attempt: Attempt) -> None:
    """End a lost lease of the generation that ends. Who had only just joined has done nothing that is kept."""
    reason = Reason(lease.reported_reason)
    billable = Billable.NOTHING if _has_just_joined(lease, attempt) else REASONS[reason].billable
    lease.replaced_at = clock.now()
    lease.save(update_fields=["replaced_at"])
    leasing.end_lease(lease, billable, reason=reason)
    if REASONS[reason].fault == Fault.PROVIDER:
        Node.objects.filter(pk=lease.node_id).update(failures=F("failures") + 1)


def pay_again(attempt: Attempt) -> int:
    """Pay the leases of a locked job's attempt again, once its present generation trains: all of them run, and the
    first node has said that all ranks have loaded the checkpoint. A node that prepares runs too, for hours where it
    must; and those of a gang that shrank never report anything else. Returns for how many that is.
    """
    if not attempt.generation or attempt.broken_at is not None or not _has_resumed(attempt):
        return 0
    if any(lease.reported_state not in _UP for lease in attempt.leases.members()):
        return 0
    return close_unpaid(attempt)


def _has_resumed(attempt: Attempt) -> bool:
    progress = Job.objects.values_list("progress", flat=True).get(pk=attempt.job_id)
    is_of_it = progress.get("attempt") == attempt.number
    resume = attempt.resume_artifact
    return is_of_it and resume is not None and progress.get("resumed_from") == resume.step


def close_unpaid(attempt: Attempt) -> int:
    """Pay the leases of a locked job's attempt again: a checkpoint of all of them, say, shows that they train. One node
    that never says that it runs keeps nobody unpaid. Returns for how many that is.
    """
    count = 0
    for lease in attempt.leases.members():
        if is_unpaid(lease):
            start, _, unmetered_ms = lease.unpaid[-1]
            end = max(start, lease.observed_ms - unmetered_ms)
            lease.unpaid = [*lease.unpaid[:-1], *([[start, end]] if end > start else [])]
            lease.save(update_fields=["unpaid"])
            count += 1
    return count


def _unmetered_ms(lease: Lease) -> int:
    """How long the lease was seen running and its meter did not count, as while its agent was away; 0 for a receipt
    that is only as old as receipts are."""
    newest = metering.newest(lease.pk)
    behind_ms = lease.observed_ms - (newest.billable_ms if newest else 0)
    return behind_ms if newest and behind_ms > RECEIPT_AGE_MS_MAX else 0


def is_unpaid(lease: Lease) -> bool:
    """Whether a span of its meter that is not paid has begun, and not ended."""
    return bool(lease.unpaid) and lease.unpaid[-1][1] is None


def _may_replace(job: Job, attempt: Attempt) -> bool:
    return may_go_on(job, attempt) and has_progress(job, attempt) and not has_failed_to_grow(attempt)


def may_go_on(job: Job, attempt: Attempt) -> bool:
    """Whether the rest of a locked job's attempt that lost nodes could go on in another generation."""
    if not kind_of(job).outlives_a_lost_node or job.spec.get("command"):
        return False
    if job.is_escrow or job.cancel_requested_at is not None:
        return False
    if attempt.state != AttemptState.RUNNING or attempt.generation >= GENERATIONS_MAX:
        return False
    if attempt.artifacts.filter(kind="output").exists():  # then the programs of the others have ended
        return False
    leases = list(attempt.leases.members().select_related("node", "attempt__job"))
    lost = [lease for lease in leases if lease.reported_state in ATTEMPT_ENDS]
    rest = [lease for lease in leases if lease.reported_state not in ATTEMPT_ENDS]
    return bool(lost and rest) and all(map(_is_replaceable, lost)) and all(map(goes_on, rest))


def has_progress(job: Job, attempt: Attempt) -> bool:
    """Whether going on is worth more than another attempt: those are counted as tries, and end some day.

    There is a checkpoint, which no loss before this one has gone on from. A growth goes on from one of its own.
    """
    resume = Artifact.objects.resumable(job).first()
    if resume is None:
        return False
    is_new = not attempt.generation or attempt.resume_artifact_id != resume.pk
    return is_new or attempt.leases.members().filter(joined_generation=attempt.generation).exists()


def has_failed_to_grow(attempt: Attempt) -> bool:
    """Whether nodes that joined the gang in its present generation, and no others, were lost before it saved anything:
    without them it goes on as before."""
    return all(_has_just_joined(lease, attempt) for lease in lost_leases(attempt))


def _has_just_joined(lease: Lease, attempt: Attempt) -> bool:
    """Whether a lease joined the gang in its present generation, and that has saved nothing yet."""
    if not attempt.generation or lease.joined_generation != attempt.generation:
        return False
    saved = Artifact.objects.complete().filter(attempt=attempt, kind="checkpoint", generation=attempt.generation)
    return not saved.exists()


def _is_replaceable(lease: Lease) -> bool:
    """Whether the gang may go on after the loss, with another node or without one: it is not the customer's doing, and
    no checkpoint's. Without who had only just joined the others trained well, whatever it was."""
    if causes.is_aborted(lease):  # it only followed from the end of another one, not yet missed
        return False
    reason = Reason(lease.reported_reason)
    is_others_doing = reason not in REPLACEABLE or REASONS[reason].fault not in {Fault.PROVIDER, Fault.NETWORK}
    return not is_others_doing or _has_just_joined(lease, lease.attempt)


def goes_on(lease: Lease) -> bool:
    """Whether the node's program runs, is not to stop, and can be told of another generation; so can one that has just
    joined, whose launcher runs."""
    has_joined = lease.reported_state == AttemptState.PREPARING and lease.joined_generation is not None
    is_up = lease.state == LeaseState.ACTIVE and (lease.reported_state == AttemptState.RUNNING or has_joined)
    return is_up and not lease.stop_reason and lease.follows_generations
