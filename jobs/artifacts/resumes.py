"""Whether attempts could go on from a checkpoint: what failed is set aside, what worked replaces what came before it.

A checkpoint is the word of the node that saved it; that it cannot be resumed from is the word of another one. So one
failed resume proves nothing: the next attempt tries the same checkpoint on another node. Of those who fail:

    a judge           an attempt of providers who gain nothing by it, and have not judged it before, whose runtime named
                      the checkpoint by its exit code
    anybody else      the uploader's nodes, the customer's, the same provider again, a code that may mean the input, no
                      memory, or a model of the hub that its owner may have changed since

JUDGES_WANTED judges condemn it: its uploader is paid nothing for having saved it. After FAILED_MAX failures without so
many, of a job in shared host folders on as many providers, for each of them may hold something else there, it is set
aside all the same, and nobody's pay changes: the customer may contest it. The attempt after that goes on from the one
before. Of an attempt with CONDEMNED_MAX of them that is no other of the same attempt, but for what others have gone on
from: it may have kept a hundred, and each would be four attempts that nobody pays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from django.db import models
from django.db.models import F, Q

from jobs.kinds.registry import kind_of
from jobs.leases import leasing
from jobs.models import Artifact, Attempt, Lease
from marketplace.foundation import clock
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, Reason
from runtimes.contract import ExitCode

JUDGES_WANTED: Final = 2
FAILED_MAX: Final = 4
CONDEMNED_MAX: Final = 2  # of one attempt

log = logging.getLogger(__name__)


def judge_failed(attempt: Attempt, *, exit_code: int | None) -> bool:
    """Take note that an attempt, which is about to end, could not resume; whether its checkpoint is set aside now.

    Call it with the job's row locked.
    """
    artifact = attempt.resume_artifact
    if artifact is None or artifact.condemned_at is not None:
        return False
    failed = Attempt.objects.filter(resume_artifact=artifact, reason=Reason.BAD_CHECKPOINT.value)
    codes = {**dict(failed.order_by("number").values_list("pk", "exit_code")), attempt.pk: exit_code}
    makers = Lease.objects.filter(attempt__artifacts=artifact).select_related("attempt__job")
    guilty = _providers([lease.attempt_id for lease in makers])
    sure = [pk for pk, code in codes.items() if code == ExitCode.BAD_CHECKPOINT]
    is_sure = kind_of(attempt.job).pins_input(attempt.job) and (
        _count_judges(sure, apart_from=guilty | {attempt.job.organisation_id}) >= JUDGES_WANTED
    )
    reads_lent = kind_of(attempt.job).reads_lent(attempt.job)
    failures = _count_judges(codes, apart_from=set()) if reads_lent else len(codes)
    if not is_sure and failures < FAILED_MAX:
        return False
    artifact.condemned_at = clock.now()
    artifact.save(update_fields=["condemned_at"])
    beside = _condemn_others(artifact)
    # What others went on from was worth its pay, whatever became of its bytes.
    is_proven = is_sure and not _has_worked(artifact)
    refunded = {str(lease.pk): str(leasing.recharge(lease)) for lease in makers} if is_proven else {}
    Event.objects.create(
        subject_kind="condemned_checkpoint",
        subject_id=artifact.pk,
        to_state="condemned",
        actor="system",
        data={
            "attempts": [str(each) for each in codes],
            "refunded_units": refunded,
            "beside": [str(each.pk) for each in beside],
        },
    )
    log.warning("A checkpoint was set aside. artifact_id=%s attempts=%s proven=%s", artifact.pk, list(codes), is_proven)
    if is_proven and len(guilty) == 1:
        Node.objects.filter(pk__in=makers.values("node_id")).update(failures=F("failures") + 1)
    return True


def proven_attempt(job_id: UUID) -> Attempt | None:
    """The newest attempt whose checkpoint nodes of another provider, or the customer's own, have gone on from.

    What attempts before it saved is not needed any more.
    """
    went_on = _went_on(Attempt.objects.filter(job_id=job_id))
    found = [
        (attempt, origin.attempt)
        for attempt in went_on.select_related("resume_artifact__attempt", "began_from__attempt", "job")
        if (origin := _origin(attempt)) is not None and origin.condemned_at is None and origin.attempt is not None
    ]
    for attempt, before in sorted(found, key=lambda pair: pair[1].number, reverse=True):
        others = _providers([attempt.pk])
        if others - _providers([before.pk]) or others == {attempt.job.organisation_id}:
            return before
    return None


def _condemn_others(artifact: Artifact) -> list[Artifact]:
    """Set aside what else the attempt saved, where it is the last that it may have; which they were."""
    saved = Artifact.objects.complete().filter(attempt=artifact.attempt_id, kind="checkpoint")
    bad = Artifact.objects.filter(attempt=artifact.attempt_id, kind="checkpoint", condemned_at__isnull=False)
    if bad.count() < CONDEMNED_MAX:
        return []
    others = [each for each in saved.filter(condemned_at=None) if not _has_worked(each)]
    Artifact.objects.filter(pk__in=[each.pk for each in others]).update(condemned_at=artifact.condemned_at)
    return others


def _count_judges(attempt_ids: Iterable[UUID], *, apart_from: set[UUID]) -> int:
    """How many of the attempts ran on providers of their own, none of whom is one of these."""
    known, count = set(apart_from), 0
    for attempt_id in attempt_ids:
        mine = _providers([attempt_id])
        if mine and not mine & known:
            known |= mine
            count += 1
    return count


def _has_worked(artifact: Artifact) -> bool:
    others = Q(resume_artifact=artifact) & ~Q(resume_artifact__attempt=F("pk"))
    return _went_on(Attempt.objects.filter(others | Q(began_from=artifact))).exists()


def _origin(attempt: Attempt) -> Artifact | None:
    """The checkpoint of an attempt before it that it went on from. A later generation of a gang goes on from what its
    own attempt had saved, which proves nothing of others."""
    if attempt.generation:
        return attempt.began_from
    return attempt.resume_artifact


def _went_on(attempts: models.QuerySet[Attempt]) -> models.QuerySet[Attempt]:
    """Those that came to a credible checkpoint of their own, or to the end."""
    saved = Artifact.objects.credible().values("attempt_id")
    return attempts.filter(Q(state=AttemptState.SUCCEEDED.value) | Q(pk__in=saved))


def _providers(attempt_ids: list[UUID]) -> set[UUID]:
    """The organisations whose nodes an attempt ran on."""
    leases = Lease.objects.filter(attempt_id__in=attempt_ids)
    return set(leases.values_list("node__provider__organisation_id", flat=True))
