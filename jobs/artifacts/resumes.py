"""Whether attempts could go on from a checkpoint: what failed is set aside, what worked replaces what came before it.

A checkpoint is the word of the node that saved it; that it cannot be resumed from is the word of another one. So one
failed resume proves nothing: the next attempt tries the same checkpoint on another node. The second one condemns it,
and the attempt after that goes on from the one before.
"""

from __future__ import annotations

import logging
from typing import Final
from uuid import UUID

from django.db import models
from django.db.models import F, Q

from jobs.leases import leasing
from jobs.models import Artifact, Attempt, Lease
from marketplace.foundation import clock
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, Reason
from runtimes.contract import ExitCode

RESUMES_FAILED_MAX: Final = 2

log = logging.getLogger(__name__)


def judge_failed(attempt: Attempt, *, exit_code: int | None) -> bool:
    """Take note that an attempt, which is about to end, could not resume; whether its checkpoint is condemned now.

    Then its uploader is paid nothing for having saved it, and has a failure; but only where two providers say so who
    gain nothing by it, and whose runtime named the checkpoint (`exit_code`) and not the input. One broken node that
    fails twice is one witness, and a customer's own node is none: its word would make their job cheaper. Without two
    the customer can still contest the pay. Call it with the job's row locked.
    """
    artifact = attempt.resume_artifact
    if artifact is None or artifact.condemned_at is not None:
        return False
    failed = Attempt.objects.filter(resume_artifact=artifact, reason=Reason.BAD_CHECKPOINT.value).exclude(pk=attempt.pk)
    witnesses = [attempt.pk, *failed.values_list("pk", flat=True)]
    if len(witnesses) < RESUMES_FAILED_MAX:
        return False
    sure = list(failed.filter(exit_code=ExitCode.BAD_CHECKPOINT).values_list("pk", flat=True))
    sure += [attempt.pk] if exit_code == ExitCode.BAD_CHECKPOINT else []
    artifact.condemned_at = clock.now()
    artifact.save(update_fields=["condemned_at"])
    makers = Lease.objects.filter(attempt__artifacts=artifact).select_related("attempt__job")
    guilty = _providers([lease.attempt_id for lease in makers])
    judges = _providers(sure) - guilty - {attempt.job.organisation_id}
    # What others went on from was worth its pay, whatever became of its bytes.
    is_proven = len(judges) >= RESUMES_FAILED_MAX and not _has_worked(artifact)
    refunded = {str(lease.pk): str(leasing.recharge(lease)) for lease in makers} if is_proven else {}
    Event.objects.create(
        subject_kind="condemned_checkpoint",
        subject_id=artifact.pk,
        to_state="condemned",
        actor="system",
        data={"attempts": [str(each) for each in witnesses], "refunded_units": refunded},
    )
    log.warning("A checkpoint was condemned. artifact_id=%s attempts=%s", artifact.pk, witnesses)
    if is_proven and len(guilty) == 1:
        Node.objects.filter(pk__in=makers.values("node_id")).update(failures=F("failures") + 1)
    return True


def proven_attempt(job_id: UUID) -> Attempt | None:
    """The newest attempt whose checkpoint nodes of another provider, or the customer's own, have gone on from.

    What attempts before it saved is not needed any more.
    """
    went_on = _went_on(Attempt.objects.filter(job_id=job_id, resume_artifact__condemned_at=None))
    went_on = went_on.order_by("-resume_artifact__attempt__number")
    for attempt in went_on.select_related("resume_artifact__attempt", "job"):
        before = attempt.resume_artifact.attempt if attempt.resume_artifact else None
        if before is None:
            continue
        others = _providers([attempt.pk])
        if others - _providers([before.pk]) or others == {attempt.job.organisation_id}:
            return before
    return None


def _has_worked(artifact: Artifact) -> bool:
    return _went_on(Attempt.objects.filter(resume_artifact=artifact)).exists()


def _went_on(attempts: models.QuerySet[Attempt]) -> models.QuerySet[Attempt]:
    """Those that came to a credible checkpoint of their own, or to the end."""
    saved = Artifact.objects.credible().values("attempt_id")
    return attempts.filter(Q(state=AttemptState.SUCCEEDED.value) | Q(pk__in=saved))


def _providers(attempt_ids: list[UUID]) -> set[UUID]:
    """The organisations whose nodes an attempt ran on."""
    leases = Lease.objects.filter(attempt_id__in=attempt_ids)
    return set(leases.values_list("node__provider__organisation_id", flat=True))
