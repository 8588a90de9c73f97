"""Checkpoints, outputs and prepared data, from the nodes of an attempt.

    begin      a node announces its files: the artifact is UPLOADING, and the node learns where the bytes go
    complete   a node's bytes are all there; with the last node's the artifact is COMPLETE, and nothing else makes it so

Both may be repeated at any time. Only the node that holds the lease may call them, and only while it holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from django.db import transaction
from django.db.models import F

from jobs import lifecycle
from jobs.artifacts import checkpoints, prepared, quotas
from jobs.artifacts.manifest import accept_files
from jobs.artifacts.parts import uploads_for, verify_bytes
from jobs.artifacts.prune import abandon, prune_checkpoints, prune_prepared
from jobs.errors import ArtifactClosed, ArtifactNotFound, BadManifest, ManifestChanged
from jobs.leases import joining
from jobs.leases.fencing import require_fence, require_live
from jobs.leases.gangs import rank_of
from jobs.leases.leasing import GRACE_MS
from jobs.leases.unpaid import close_unpaid
from jobs.models import Artifact, ArtifactKind, ArtifactPart, Lease
from jobs.states import ArtifactState
from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth
from provider_agent.protocol import ArtifactBegin, ArtifactUploads


def begin(lease: Lease, request: ArtifactBegin, *, fence: int) -> ArtifactUploads:
    """Where the bytes go that the server does not have yet; none for a part that is complete already.

    Raises BadManifest, StorageFull, ArtifactClosed, ManifestChanged.
    """
    files = accept_files(request.files, may_be_empty=request.kind == "output")
    if (request.kind == "checkpoint") != (request.step is not None):
        raise BadManifest("A checkpoint has a step, and nothing else has one.")
    if request.step is not None:
        checkpoints.check_step(lease, request.step)
    if request.kind == "prepared":
        prepared.check_announced(lease, request.files)
    if request.kind == "checkpoint" and request.generation != lease.attempt.generation:
        # Ranks of a generation before wrote it: a part of it beside parts of this one would be nobody's training.
        raise BadManifest(f"The gang is in its generation {lease.attempt.generation}, not {request.generation}.")
    with transaction.atomic():
        # The job's row first, as everywhere. The rows below refer to it, so the database locks it at the commit at the
        # latest: who wrote them before then deadlocks with who holds the job and waits for one of them.
        lifecycle.lock(lease.attempt.job_id)
        lease = require_live(lease.pk, fence=fence)
        if request.kind == "checkpoint" and request.generation != lease.attempt.generation:
            raise BadManifest("The gang went on with another generation meanwhile.")
        if request.kind == "output" and joining.end_growth(lease.attempt):
            lease = require_live(lease.pk, fence=fence)
        if lease.is_joining:
            raise BadManifest("This node has not joined its gang yet.")
        # Of a gang that grew as its training ended, a node may know another rank than it has now; its lease is known.
        may_differ = request.kind == "output" and lease.attempt.generation > 0
        if request.node_rank != (rank := rank_of(lease)) and not may_differ:
            raise BadManifest(f"This node's rank is {rank}, not {request.node_rank}.")
        artifact = _find_or_create(lease, request)
        part, is_new = ArtifactPart.objects.get_or_create(
            artifact=artifact,
            node_rank=rank,
            defaults={
                "lease": lease,
                "files": files,
                # Who pays for what was not saved depends on this figure, so the server's own view bounds it.
                "billable_ms": min(request.billable_ms, lease.observed_ms + GRACE_MS),
            },
        )
        if is_new and artifact.state == ArtifactState.UPLOADING:
            size = sum(file.size for file in request.files)
            quotas.reserve(artifact.organisation_id, size, len(files), is_prepared=request.kind == "prepared")
            ArtifactPart.objects.filter(pk=part.pk).update(file_count=len(files))
            Artifact.objects.filter(pk=artifact.pk).update(size_bytes=F("size_bytes") + size)
    if artifact.state not in {ArtifactState.UPLOADING, ArtifactState.COMPLETE}:
        raise ArtifactClosed(artifact_id=str(artifact.id), state=artifact.state)
    if [(f["path"], f["size"], f["sha256"]) for f in part.files] != [(f.path, f.size, f.sha256) for f in request.files]:
        raise ManifestChanged(artifact_id=str(artifact.id))
    return ArtifactUploads(artifact_id=artifact.id, uploads=[] if part.is_complete else uploads_for(part))


def complete(lease: Lease, artifact_id: UUID, etags: Mapping[str, Sequence[str]], *, fence: int) -> Artifact:
    """This node's part is complete, verified as far as the store can; raises UploadIncomplete with the files.

    Raises BadManifest for a checkpoint, or prepared data, that are none.
    """
    part = ArtifactPart.objects.select_related("artifact").filter(artifact_id=artifact_id, lease=lease).first()
    if part is None:
        raise ArtifactNotFound()
    require_fence(lease, fence)
    if part.is_complete:
        return part.artifact
    if part.artifact.state != ArtifactState.UPLOADING:
        raise ArtifactClosed(artifact_id=str(artifact_id), state=part.artifact.state)
    verify_bytes(part, etags)
    try:
        checkpoints.check_content(part)
        prepared.check_content(part)
    except BadManifest:
        # Its bytes will never count, so they need no room.
        abandon(part.artifact, reason="no_checkpoint" if part.artifact.kind == "checkpoint" else "no_prepared_data")
        raise
    with transaction.atomic():
        # The job's row first, as everywhere: two nodes that finish together take turns, and the second one sees both.
        job = lifecycle.lock(lease.attempt.job_id)
        require_live(lease.pk, fence=fence)
        artifact = Artifact.objects.get(pk=artifact_id)
        is_new = ArtifactPart.objects.filter(pk=part.pk, is_complete=False).update(is_complete=True)
        complete_parts = artifact.parts.filter(is_complete=True)
        if is_new and artifact.state == ArtifactState.UPLOADING and complete_parts.count() == artifact.parts_expected:
            size = sum(file["size"] for one in complete_parts for file in one.files)
            if artifact.kind == ArtifactKind.PREPARED:
                prune_prepared(job)
            advance(artifact, ArtifactState.COMPLETE, completed_at=clock.now(), size_bytes=size)
            if artifact.kind == ArtifactKind.CHECKPOINT and artifact.generation == lease.attempt.generation > 0:
                close_unpaid(lease.attempt)  # all of them train
            prune_checkpoints(job)
    return artifact


def _find_or_create(lease: Lease, request: ArtifactBegin) -> Artifact:
    if request.kind == "prepared" and (begun := prepared.find_begun(lease)) is not None:
        return begun
    job = lease.attempt.job
    artifact, is_new = Artifact.objects.get_or_create(
        attempt=lease.attempt,
        generation=lease.attempt.generation if request.kind in ("checkpoint", "prepared") else 0,
        kind=request.kind,
        step=request.step,
        defaults={
            "organisation_id": job.organisation_id,
            "job": job,
            "parts_expected": 1 if request.kind == "prepared" else lease.attempt.leases.members().count(),
        },
    )
    if is_new:
        record_birth(artifact, actor=f"node {lease.node_id}")
        if request.kind == "prepared":
            prepared.replace_begun(artifact)
    return artifact
