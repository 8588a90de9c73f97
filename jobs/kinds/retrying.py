"""What the end of an attempt means for a job: it is done, tried again, paused, or over.

The reason decides by the table `provider_agent.protocol.outcomes.REASONS`; the job file's `retry.on` may add reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from jobs.models import Job, Lease
from jobs.pricing.costs import charged_of
from jobs.states import JobState
from provider_agent.protocol import AttemptState, Outcome, Reason

REST_SHARE_MIN: Final = 0.05  # of a cap, that is worth another attempt
IMAGE_TRIES: Final = 2  # of attempts that could not have the image that the customer named


@dataclass(frozen=True)
class NextStep:
    """The state that a job should change to, and why."""

    state: JobState
    reason: Reason
    message: str = ""


def next_step(job: Job, reason: Reason, outcome: Outcome, *, message: str, pins_folders: bool = True) -> NextStep:
    """The state that a job changes to after one of its attempts ended, for a program that runs to its end.

    A lost node ends its attempt with a reason that is tried again (`REASONS`); `lifecycle.finish_attempt` asks here.
    `pins_folders`: whether every node reads the same, as none does of a job in shared host folders.
    """
    if job.cancel_requested_at is not None and outcome.state != AttemptState.SUCCEEDED:
        return NextStep(JobState.CANCELLED, Reason(job.cancel_reason))
    if outcome.state == AttemptState.SUCCEEDED:
        return NextStep(JobState.COMPLETED, reason)
    if reason == Reason.BUDGET_EXHAUSTED and job.state == JobState.RUNNING and not job.is_escrow:
        if _has_unpaid_rest(job):
            return NextStep(JobState.RECOVERING, reason, message)
        return NextStep(JobState.PAUSED, reason, message)
    if _may_retry(job, reason, outcome, pins_folders=pins_folders):
        return NextStep(JobState.RECOVERING, reason, message)
    return NextStep(JobState.FAILED, reason, message)


def _has_unpaid_rest(job: Job) -> bool:
    """Whether meters came to the cap's end by time that is not paid: a node of the gang was lost, and the rest of the
    money is there still."""
    if not Lease.objects.filter(attempt__job=job).exclude(unpaid=[]).exists():
        return False
    return job.cap_usd_micros - charged_of(job).usd_micros > job.cap_usd_micros * REST_SHARE_MIN


def _may_retry(job: Job, reason: Reason, outcome: Outcome, *, pins_folders: bool) -> bool:
    """Whether the reason allows another attempt, the deadline leaves time for one, and `attempts_max` leaves one."""
    is_named = reason.value in (job.spec.get("retry") or {}).get("on", [])
    is_wanted = outcome.retry or is_named or (reason == Reason.IMAGE_UNAVAILABLE and not _is_missing(job))
    # An attempt that ended because the budget did was no failed try; nor was one that had a bad checkpoint to begin
    # with, of which there is an end: four of them set it aside. Of shared host folders those of four providers do, and
    # what one of them says again is a try.
    tried = job.attempts.exclude(reason__in=[Reason.BUDGET_EXHAUSTED.value, Reason.BAD_CHECKPOINT.value]).count()
    if not pins_folders:
        tried += _count_repeated(job)
    return is_wanted and not job.is_late and tried < job.attempts_max


def _count_repeated(job: Job) -> int:
    """Attempts that could not resume from a checkpoint, on a provider that could not before."""
    leases = Lease.objects.filter(attempt__job=job, attempt__reason=Reason.BAD_CHECKPOINT.value)
    rows = leases.order_by("attempt__number").values_list(
        "attempt_id", "attempt__resume_artifact_id", "node__provider_id"
    )
    providers: dict[tuple[UUID, UUID | None], set[UUID]] = {}
    for attempt_id, artifact_id, provider_id in rows:
        providers.setdefault((attempt_id, artifact_id), set()).add(provider_id)
    known: dict[UUID | None, set[UUID]] = {}
    repeated = 0
    for (_, resumed_id), mine in providers.items():
        before = known.setdefault(resumed_id, set())
        if mine & before:
            repeated += 1
        else:
            before |= mine
    return repeated


def _is_missing(job: Job) -> bool:
    """Whether the job's image is, as far as two attempts can tell: one node alone might say so of any image."""
    return job.attempts.filter(reason=Reason.IMAGE_UNAVAILABLE.value).count() >= IMAGE_TRIES
