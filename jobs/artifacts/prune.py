"""What may go: checkpoints and prepared data that newer ones replace, uploads that nobody will finish, inputs and
prepared data that no job needs.

A row's state changes first, its bytes go after the commit; those of a deleted volume by the sweep, as they may be many.
The part keeps its list of files until they have gone, so that the sweep finds what a crash in between left behind. What
the second store has is left to the sweep, which finds it by its row (`copies.py`): no request waits for that store.
Bytes go once more when nobody can have an address to PUT to any more: a bucket takes bytes for whoever has one, and
nobody would ever count or delete them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from jobs.artifacts import copies, resumes
from jobs.artifacts.choice import get_store
from jobs.artifacts.store import prefix_for
from jobs.errors import ArtifactClosed, ArtifactInUse, ArtifactInVolume, ArtifactNotFound
from jobs.models import (
    Artifact,
    ArtifactKind,
    ArtifactPart,
    Attempt,
    EndpointVersion,
    FollowingEvaluation,
    Job,
    JobInput,
    VolumeVersion,
)
from jobs.states import JOB_ENDS, LEASE_LIVE, ArtifactState
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.foundation.states import advance
from provider_agent.protocol import ATTEMPT_ENDS

CHECKPOINTS_KEPT_DEFAULT = 2
INPUT_UPLOAD_SECONDS_MAX = 24 * 3600  # an input whose upload has not ended by then is given up
ARTIFACTS_PER_SWEEP_MAX = 200
PUT_MAX = timedelta(days=1)  # that a PUT may still take when its address expires: a bucket looks when it begins

log = logging.getLogger(__name__)


def prune_checkpoints(job: Job) -> int:
    """Delete all but the newest checkpoints of each attempt, and those of attempts that are needed no more; how many.

    What one attempt saved replaces nothing of another's until nodes of somebody else have gone on from it. Never one
    that a live attempt starts from. Call it with the job's row locked.
    """
    keep = max(1, int((job.spec.get("checkpoint") or {}).get("keep") or CHECKPOINTS_KEPT_DEFAULT))
    in_use = set(Attempt.objects.live().filter(job=job).values_list("resume_artifact_id", flat=True))
    complete = Artifact.objects.complete().filter(job=job, kind=ArtifactKind.CHECKPOINT)
    found = complete.select_related("attempt").order_by("-attempt__number", "-step", "-completed_at")
    proven = resumes.proven_attempt(job.pk)
    kept: Counter[int] = Counter()
    pruned = []
    for artifact in found:
        number = artifact.attempt.number if artifact.attempt else 0
        is_over = proven is not None and number < proven.number
        if artifact.condemned_at is None and not is_over and kept[number] < keep:
            kept[number] += 1
        elif artifact.id not in in_use:
            pruned.append(artifact)
    for artifact in pruned:
        advance(artifact, ArtifactState.DELETED, reason="pruned")
    _delete_bytes_on_commit(artifact.id for artifact in pruned)
    return len(pruned)


def prune_prepared(job: Job) -> int:
    """Delete what was prepared for a job, before something newer takes its place; how many. Call it with the job's row
    locked."""
    found = list(Artifact.objects.complete().filter(job=job, kind=ArtifactKind.PREPARED))
    for artifact in found:
        advance(artifact, ArtifactState.DELETED, reason="pruned")
    _delete_bytes_on_commit(artifact.id for artifact in found)
    return len(found)


def abandon(artifact: Artifact, *, reason: str) -> None:
    """Give up one upload that can never become complete; repeating it is harmless."""
    with transaction.atomic():
        mine = Artifact.objects.select_for_update().filter(pk=artifact.pk, state=ArtifactState.UPLOADING).first()
        if mine is not None:
            advance(mine, ArtifactState.ABANDONED, reason=reason)
            _delete_bytes_on_commit([mine.id])


def abandon_uploads(attempt: Attempt) -> int:
    """Give up what an ended attempt has not finished uploading; it can never become complete."""
    abandoned = list(Artifact.objects.filter(attempt=attempt, state=ArtifactState.UPLOADING))
    for artifact in abandoned:
        advance(artifact, ArtifactState.ABANDONED, reason="attempt_ended")
    _delete_bytes_on_commit(artifact.id for artifact in abandoned)
    return len(abandoned)


def prune_all() -> int:
    """Abandon what nobody will finish, and delete bytes that a crash left behind; returns how many rows changed."""
    changed = 0
    over = Attempt.objects.filter(artifacts__state=ArtifactState.UPLOADING, state__in=ATTEMPT_ENDS)
    for attempt in over.exclude(leases__state__in=LEASE_LIVE).distinct()[:ARTIFACTS_PER_SWEEP_MAX]:
        with transaction.atomic():
            changed += abandon_uploads(attempt)
    before = clock.now() - timedelta(seconds=INPUT_UPLOAD_SECONDS_MAX)
    late = Artifact.objects.filter(kind=ArtifactKind.INPUT, state=ArtifactState.UPLOADING, created_at__lt=before)
    for artifact in late[:ARTIFACTS_PER_SWEEP_MAX]:
        advance(artifact, ArtifactState.ABANDONED, reason="upload_never_ended")
        changed += 1
    # Of ended jobs: nothing can use it any more, and it can be made again.
    changed += delete(unneeded(clock.now()).filter(kind=ArtifactKind.PREPARED), reason="not_needed")
    changed += _prune_inputs()
    gone = ArtifactPart.objects.filter(artifact__state__in=[ArtifactState.ABANDONED, ArtifactState.DELETED])
    left = gone.filter(~Q(files=[]) | Q(urls_until__lte=clock.now() - PUT_MAX))
    ids = left.values_list("artifact_id", flat=True).distinct()[:ARTIFACTS_PER_SWEEP_MAX]
    for artifact_id in list(ids):
        with log_failures("Bytes could not be deleted.", artifact_id=str(artifact_id)):
            _delete_bytes(artifact_id)
            changed += 1
    return changed + _delete_copies()


def unneeded(before: datetime) -> QuerySet[Artifact]:
    """Complete artifacts of no volume and of no job, and needed by none, that lives or ended after `before`.

    What a training was given is needed until its evaluation is launched or given up.
    """
    due = FollowingEvaluation.objects.filter(next_try_at__isnull=False)
    its_files = Exists(due.filter(training__input_artifact=OuterRef("pk")))
    its_inputs = Exists(JobInput.objects.filter(artifact=OuterRef("pk"), job__in=due.values("training")))
    kept = Exists(VolumeVersion.objects.filter(artifact=OuterRef("pk")))
    return unneeded_by_jobs(before).exclude(kept | its_files | its_inputs)


def unneeded_by_jobs(before: datetime) -> QuerySet[Artifact]:
    """The same, and what volumes and evaluations to come keep: as long as somebody pays for it, or deletes it."""
    needing = Job.objects.exclude(state__in=JOB_ENDS, ended_at__lt=before)
    own = Exists(needing.filter(pk=OuterRef("job_id")))
    needed = Exists(needing.filter(input_artifact=OuterRef("pk")))
    served = Exists(EndpointVersion.objects.filter(input_artifact=OuterRef("pk"), endpoint__job__in=needing))
    used = Exists(JobInput.objects.filter(artifact=OuterRef("pk"), job__in=needing))
    return Artifact.objects.complete().exclude(own | needed | served | used)


def delete(artifacts: QuerySet[Artifact], *, reason: str, leave_bytes: bool = False) -> int:
    """Delete what the query finds, ARTIFACTS_PER_SWEEP_MAX at most, and still finds once the row is locked; how many.

    Who begins to need an artifact locks its row first (`stays_complete`): so one of the two sees the other. Rows are
    locked in one order for all. `leave_bytes`: the sweep deletes the bytes, not this process after the commit.
    """
    deleted = 0
    for artifact_id in list(artifacts.order_by("pk").values_list("pk", flat=True)[:ARTIFACTS_PER_SWEEP_MAX]):
        with log_failures("An artifact could not be deleted.", artifact_id=str(artifact_id)), transaction.atomic():
            artifact = Artifact.objects.select_for_update().get(pk=artifact_id)
            if not artifacts.filter(pk=artifact_id).exists():
                continue
            advance(artifact, ArtifactState.DELETED, reason=reason)
            if leave_bytes:
                copies.release_copy(artifact.id)
            else:
                _delete_bytes_on_commit([artifact.id])
            deleted += 1
    return deleted


def delete_for(organisation: Organisation, artifact_id: UUID, *, actor: str) -> Artifact:
    """A customer wants it no more; a repeat changes nothing. Raises ArtifactNotFound, ArtifactClosed, ArtifactInUse,
    ArtifactInVolume."""
    with transaction.atomic():
        found = Artifact.objects.filter(organisation=organisation, pk=artifact_id)
        artifact = found.select_for_update().first()
        if artifact is None:
            raise ArtifactNotFound()
        if artifact.state == ArtifactState.DELETED:
            return artifact
        if artifact.state != ArtifactState.COMPLETE:
            raise ArtifactClosed(artifact_id=str(artifact_id), state=artifact.state)
        if not unneeded_by_jobs(clock.now()).filter(pk=artifact_id).exists():
            raise ArtifactInUse(artifact_id=str(artifact_id))
        version = VolumeVersion.objects.select_related("volume").filter(artifact=artifact).first()
        if version is not None:
            raise ArtifactInVolume(artifact_id=str(artifact_id), name=version.volume.name, version=version.number)
        advance(artifact, ArtifactState.DELETED, reason="deleted", actor=actor)
        _delete_bytes_on_commit([artifact.id])
    return artifact


def _prune_inputs() -> int:
    """Delete inputs whose jobs all ended SOUK_INPUT_KEPT_DAYS ago, and those as old that no job ever had."""
    before = clock.now() - timedelta(days=settings.SOUK_INPUT_KEPT_DAYS)
    return delete(unneeded(before).filter(kind=ArtifactKind.INPUT, completed_at__lt=before), reason="not_needed")


def _delete_copies() -> int:
    """Delete what the second store has of artifacts that are gone, until it fails: then it is likely away; how many."""
    deleted = 0
    for artifact_id in list(copies.left_over().values_list("pk", flat=True)[:ARTIFACTS_PER_SWEEP_MAX]):
        if not copies.delete_copy(artifact_id):
            break
        deleted += 1
    return deleted


def _delete_bytes_on_commit(artifact_ids: Iterable[UUID]) -> None:
    for artifact_id in artifact_ids:

        def delete_bytes(artifact_id: UUID = artifact_id) -> None:  # Django cannot name a partial that fails
            copies.release_copy(artifact_id)
            _delete_bytes(artifact_id)

        transaction.on_commit(delete_bytes, robust=True)


def _delete_bytes(artifact_id: UUID) -> None:
    now = clock.now()
    get_store().delete_prefix(prefix_for(artifact_id))
    parts = ArtifactPart.objects.filter(artifact_id=artifact_id)
    parts.update(files=[])
    parts.filter(urls_until__lte=now - PUT_MAX).update(urls_until=None)
    log.info("Bytes of artifact %s were deleted", artifact_id)
