"""Generations of a gang's attempt: a lost node is replaced, or the gang has another size, and the other leases go on.

    waits_for_others   whether an attempt that lost nodes waits for others in their place; asked by reports.conclude
    lost_leases        the leases to replace, once nothing more is to come of them
    begin              the next generation: the lost leases end, those that wait join, and the attempt goes on from its
                       newest checkpoint
    pay_again          from now on the leases are paid again, where all of a generation runs and has gone on

What the others did after the checkpoint is done again, and until the new generation runs they only wait: neither is
paid (jobs/leases/unpaid.py), as it is not where a whole attempt ends by the fault of one node.

Only our own training has a launcher that stays. A contract pays receipts alone, and of those no part: its jobs begin
another attempt, as all others do where no other node is found within REPLACE_SECONDS.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from django.db.models import F

from jobs.artifacts.prune import abandon
from jobs.kinds.registry import kind_of
from jobs.leases import joining, leasing
from jobs.leases.unpaid import close_unpaid, open_unpaid
from jobs.models import Artifact, ArtifactPart, Attempt, Job, Lease
from jobs.running import causes
from jobs.running.run_soon import run_soon
from jobs.states import ArtifactState, LeaseState
from marketplace.foundation import clock
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from provider_agent.protocol import ATTEMPT_ENDS, REASONS, AttemptState, Fault, Reason

REPLACE_SECONDS: Final = 30  # the launchers of the others wait for 240, most of which a node may take to end
GENERATIONS_MAX: Final = 1000  # of one attempt
FEATURE: Final = "generations"  # of an agent that knows them
GROWN: Final = "grown"  # the reason in the event of a generation with more nodes
# How long the others are paid when a gang grows, until all of it run. They trained until then, and who joins has
# loaded its program already; who pays for longer would pay a provider for a node that never comes up.
JOIN_PAID_MS: Final = 60_000
JUST_JOINED_SECONDS: Final = 600  # so long a growth may be why the customer's program failed on who joined
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
    has_failed = bool(lost) and has_failed_to_grow(attempt)
    # Who was still to come up has still to; and where one that had just joined failed, so may the others.
    new = [
        each for each in rest if joining.is_coming(each, attempt) or (has_failed and _has_just_joined(each, attempt))
    ]
    if lost:
        joining.give_up(attempt)  # what it was to join is another gang now
    _end_lost(lost, attempt)
    if not attempt.generation:
        attempt.began_from = attempt.resume_artifact
    attempt.generation += 1
    attempt.broken_at = attempt.suspected_at = None
    attempt.resume_artifact, attempt.master_port = resume, master_port
    changed = ["generation", "began_from", "broken_at", "suspected_at", "resume_artifact", "master_port"]
    attempt.save(update_fields=changed)
    _forget_resumed(job)
    for lease in [*joined, *new]:
        lease.is_joining, lease.joined_generation = False, attempt.generation
        lease.save(update_fields=["is_joining", "joined_generation"])
    for artifact in Artifact.objects.filter(attempt=attempt, kind="checkpoint", state=ArtifactState.UPLOADING):
        abandon(artifact, reason="another_generation")
    saved = dict(ArtifactPart.objects.filter(artifact=resume).values_list("lease_id", "billable_ms"))
    for lease in rest:  # one whose span is open never ran in the generation before
        if lost:
            open_unpaid(lease, _unpaid_from(lease, attempt, saved.get(lease.pk, 0), has_failed=has_failed))
        else:
            open_unpaid(lease, lease.observed_ms + JOIN_PAID_MS)
    _record(attempt, lost, joined, size=size)


def _record(attempt: Attempt, lost: Sequence[Lease], joined: Sequence[Lease], *, size: int | None) -> None:
    resume = attempt.resume_artifact
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


def _end_lost(lost: Sequence[Lease], attempt: Attempt) -> None:
    """End the lost leases of the generation that ends. Who had only just joined has done nothing that is kept."""
    now, new = clock.now(), {lease.pk for lease in lost if _has_just_joined(lease, attempt)}
    for lease in lost:
        reason = Reason(lease.reported_reason)
        lease.replaced_at = now
        if lease.pk in new:
            lease.unpaid = [[0, None, 0]]
        lease.save(update_fields=["replaced_at", "unpaid"])
        leasing.end_lease(lease, REASONS[reason].billable, reason=reason)
        if REASONS[reason].fault == Fault.PROVIDER:
            Node.objects.filter(pk=lease.node_id).update(failures=F("failures") + 1)


def _unpaid_from(lease: Lease, attempt: Attempt, saved_ms: int, *, has_failed: bool) -> int:
    """From where on the meter of a lease that goes on is not paid, where a node was lost: from the checkpoint on; and
    where that only ended a growth, from the growth on, as what is done again for its sake was no node's doing."""
    if has_failed and attempt.grown_at is not None:
        return max(saved_ms, lease.observed_ms - (clock.now() - attempt.grown_at) // timedelta(milliseconds=1))
    return saved_ms


def _forget_resumed(job: Job) -> None:
    """What the first node said of the generation before says nothing of the next one."""
    progress = Job.objects.values_list("progress", flat=True).get(pk=job.pk)
    if progress.pop("resumed_from", None) is not None:
        Job.objects.filter(pk=job.pk).update(progress=progress)


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
    no checkpoint's. Without who had only just joined the others trained well, whatever it was; what the customer's own
    program does later is its own doing."""
    if causes.is_aborted(lease):  # it only followed from the end of another one, not yet missed
        return False
    reason = Reason(lease.reported_reason)
    if reason in REPLACEABLE and REASONS[reason].fault in {Fault.PROVIDER, Fault.NETWORK}:
        return True
    joined_at = lease.attempt.grown_at or clock.now()
    is_early = clock.now() - joined_at < timedelta(seconds=JUST_JOINED_SECONDS)
    return (is_early or REASONS[reason].fault != Fault.CUSTOMER) and _has_just_joined(lease, lease.attempt)


def goes_on(lease: Lease) -> bool:
    """Whether the node's program runs, is not to stop, and can be told of another generation; so can one that has just
    joined, whose launcher runs."""
    has_joined = lease.reported_state == AttemptState.PREPARING and lease.joined_generation is not None
    is_up = lease.state == LeaseState.ACTIVE and (lease.reported_state == AttemptState.RUNNING or has_joined)
    return is_up and not lease.stop_reason and lease.follows_generations
