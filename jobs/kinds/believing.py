"""Which reason counts for a lease whose node reports its end: what the marketplace can see itself it does not ask.

    the node names a stop          the marketplace ordered one: its order names the reason
                                   it ordered none: a lie, FALSE_REASON; of a budget, where that may really be used up
                                   by the node's own meter, the truth or nobody's fault
    our program ended by a signal  the node's doing, or another node's: never the customer's
    or with a code it never gives  nobody's: its launcher failed, where the node cannot start it, or a peer is away
    a resumed one has bad input    its checkpoint, which another node saved: never the customer's
    no image could be had          the node's doing, unless the customer named the image and it never ran
    bad input, of a shared folder  unpaid and tried elsewhere, also of a resumed one, until a second provider's node
                                   says the same; not of a node that saved a checkpoint: it had the input
    the same, of endpoints         the customer's, also of a resumed one: what they ask may refuse any day; where
                                   the job reads a shared folder too, the line above counts first
    the node names another end     believed, as an order may cross it; but of a node in quarantine only its own failure

What remains of a node's word is how its own program ended.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from jobs.models import Artifact, ArtifactPart, CurvePoint, Job, Lease
from jobs.states import ArtifactState
from marketplace.foundation import clock
from provider_agent.protocol import BEAT_SECONDS_LEASED, REASONS, Fault, Reason, payable_ms
from runtimes.contract import ExitCode

LEASE_SECONDS_MAX: Final = 30 * 24 * 3600  # that an assignment lets a program run, whatever its cap pays for
BUDGET_MARGIN_SECONDS: Final = 30  # before the cap is used up, so that a last checkpoint can be saved
BUDGET_MARGIN_SHARE: Final = 0.05  # and at most this share of what the cap pays for
SIGNAL_CODE_BASE: Final = 128  # an exit code above it: the number of the signal that ended the program

OF_INPUT: Final = frozenset({Reason.BAD_INPUT, Reason.BAD_CONFIG})
INPUT_CODES: Final = (int(ExitCode.BAD_DATA), int(ExitCode.BAD_CONFIG))  # a failed fetch has no code

# Nothing on a node causes these: a node that names one was ordered to stop for it, or lies.
ORDERED: Final = frozenset(
    {
        Reason.CANCELLED_BY_CUSTOMER,
        Reason.CANCELLED_BY_OPERATOR,
        Reason.DEADLINE_EXCEEDED,
        Reason.BUDGET_EXHAUSTED,  # a node's own meter may come first: see `_unordered_budget`
        Reason.NODE_SILENT,
        Reason.NODE_QUARANTINED,
        Reason.GANG_BROKEN,
        Reason.NEVER_STARTED,
        Reason.REPLICA_RETIRED,
        Reason.REPLICA_UNHEALTHY,
        Reason.REPLICA_WRONG,
        Reason.FALSE_REASON,
        Reason.NOT_JOINED,
    }
)


def believe(lease: Lease, reason: Reason) -> Reason:
    """The reason that counts, of a lease whose node reports `reason` for its end now.

    `lease` as it is under its job's lock, with what the server has observed up to this report.
    """
    ordered = Reason(lease.stop_reason) if lease.stop_reason else None
    if reason in ORDERED:
        return ordered or _unordered(lease, reason)
    if ordered == Reason.NODE_QUARANTINED and REASONS[reason].fault != Fault.PROVIDER:
        return ordered  # else it would be paid, end the job for good, or judge another's checkpoint
    return reason


def of_our_program(reason: Reason, exit_code: int | None) -> Reason:
    """The same, of a program of ours: it sends itself no signals, and each end that its customer causes has a code.

    Agents of before called these `exit_nonzero`; so do agents today where the output is refused, with its code 0.
    """
    if reason != Reason.EXIT_NONZERO or not exit_code:
        return reason
    return Reason.PROCESS_VANISHED if exit_code > SIGNAL_CODE_BASE else Reason.INTERNAL


def of_image(lease: Lease, reason: Reason) -> Reason:
    """The same, of an image: the provider's own, or one that ran already, is not missing by the customer's doing."""
    if reason != Reason.IMAGE_UNAVAILABLE or (lease.attempt.job.spec.get("image") and lease.running_at is None):
        return reason
    return Reason.EXECUTOR_FAILED


def of_resumed(lease: Lease, reason: Reason) -> Reason:
    """The same, of an attempt that began from a checkpoint: what our runtime cannot use is that.

    The input and the configuration are the job's, and an attempt before this one read them. Agents of before called it
    `bad_input`. Where there was no checkpoint, or this attempt saved one of its own behind it, the word is a lie.
    """
    if reason not in {Reason.BAD_INPUT, Reason.BAD_CONFIG, Reason.BAD_CHECKPOINT}:
        return reason
    attempt, is_ours = lease.attempt, not lease.attempt.job.spec.get("command")
    saved = attempt.artifacts.filter(kind="checkpoint", state=ArtifactState.COMPLETE)
    # A later generation of a gang resumes from what its own attempt had saved before.
    resumed_id = attempt.resume_artifact_id
    has_resumed = resumed_id and saved.filter(generation=attempt.generation).exclude(pk=resumed_id).exists()
    if is_ours and resumed_id is not None and not has_resumed:
        return Reason.BAD_CHECKPOINT
    return Reason.FALSE_REASON if reason == Reason.BAD_CHECKPOINT else reason


def of_lent(lease: Lease, reason: Reason) -> Reason:
    """The same, of a job whose program reads shared host folders: what a provider put there is not the customer's.

    A customer may name a file that no folder has, and a provider share an empty one to be paid for nothing. So the
    first word of it is paid by nobody, and the job goes to another provider. Where a node of another provider said the
    same in an attempt before, it is the customer's input after all, unless some attempt could read it.

    A node that saved its part of a checkpoint had the input: what ends it later is not for want of the folder, and the
    customer has what it trained. A step alone is the node's word: with it an empty folder would be paid for.
    """
    if reason not in OF_INPUT or _has_saved(lease):
        return reason
    if _was_read(lease.attempt.job):
        return Reason.INPUT_UNAVAILABLE
    before = Lease.objects.filter(
        attempt__job=lease.attempt.job_id, reported_reason=Reason.INPUT_UNAVAILABLE.value, exit_code__in=INPUT_CODES
    )
    is_repeated = before.exclude(attempt=lease.attempt_id).exclude(node__provider=lease.node.provider_id).exists()
    return reason if is_repeated else Reason.INPUT_UNAVAILABLE


def _has_saved(lease: Lease) -> bool:
    saved = Artifact.objects.credible().filter(attempt=lease.attempt_id)
    return ArtifactPart.objects.filter(lease=lease, artifact__in=saved).exists()


def _was_read(job: Job) -> bool:
    """Whether an attempt of the job reached a step, or saved a checkpoint, from the same paths."""
    saved = Artifact.objects.credible().filter(job=job)
    return saved.exists() or CurvePoint.objects.filter(curve__job=job).exists() or "step" in job.progress


def is_spent(lease: Lease) -> bool:
    """Whether the server saw a lease run for so long that its cap is about to be used up."""
    limit_ms = payable_ms(lease.rate_units_per_hour, lease.cap_units)
    return _comes_near(lease.observed_ms, limit_ms)


def _unordered(lease: Lease, reason: Reason) -> Reason:
    if reason == Reason.BUDGET_EXHAUSTED:
        return _unordered_budget(lease)
    # One that costs nobody but the node itself is no lie worth a fine: the node broke the attempt, and said so.
    return Reason.EXECUTOR_FAILED if REASONS[reason].fault == Fault.PROVIDER else Reason.FALSE_REASON


def _unordered_budget(lease: Lease) -> Reason:
    """An agent's meter may see the end of a cap before the marketplace does, which may have been away meanwhile."""
    limit_ms = min(payable_ms(lease.rate_units_per_hour, lease.cap_units), LEASE_SECONDS_MAX * 1000)
    if _comes_near(lease.observed_ms, limit_ms):
        return Reason.BUDGET_EXHAUSTED
    active_ms = (clock.now() - (lease.active_at or clock.now())) // timedelta(milliseconds=1)
    return Reason.INTERNAL if _comes_near(active_ms, limit_ms) else Reason.FALSE_REASON


def _comes_near(ran_ms: int, limit_ms: int) -> bool:
    margin_ms = min(BUDGET_MARGIN_SECONDS * 1000, limit_ms * BUDGET_MARGIN_SHARE)
    return ran_ms + BEAT_SECONDS_LEASED * 1000 >= limit_ms - margin_ms
