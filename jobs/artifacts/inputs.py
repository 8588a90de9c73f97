"""The customer's files: announced and uploaded before the job that needs them is submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from django.db import transaction

from jobs.artifacts import quotas
from jobs.artifacts.manifest import accept_files
from jobs.artifacts.parts import uploads_for, verify_bytes
from jobs.errors import ArtifactClosed, ArtifactNotFound
from jobs.models import Artifact, ArtifactKind, ArtifactPart
from jobs.states import ArtifactState
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth
from provider_agent.protocol import ArtifactFile, FileUpload


def announce_input(organisation: Organisation, files: Sequence[ArtifactFile], *, actor: str = "system") -> Artifact:
    """A new input of these files, without a call to the store; raises BadManifest with every mistake, StorageFull."""
    accepted = accept_files(files)
    with transaction.atomic():
        quotas.reserve(organisation.pk, sum(file.size for file in files), len(files))
        artifact = Artifact.objects.create(
            organisation=organisation,
            kind=ArtifactKind.INPUT,
            size_bytes=sum(file.size for file in files),
        )
        ArtifactPart.objects.create(artifact=artifact, files=accepted, file_count=len(accepted))
        record_birth(artifact, actor=actor)
    return artifact


def begin_input(organisation: Organisation, artifact_id: UUID) -> list[FileUpload]:
    """Where the bytes go that are not there yet; asks the store, so never in a transaction. Raises ArtifactClosed."""
    part = ArtifactPart.objects.select_related("artifact").get(
        artifact_id=artifact_id, artifact__organisation=organisation, artifact__kind=ArtifactKind.INPUT
    )
    if part.artifact.state == ArtifactState.COMPLETE:
        return []
    if part.artifact.state != ArtifactState.UPLOADING:
        raise ArtifactClosed(artifact_id=str(artifact_id), state=part.artifact.state)
    return uploads_for(part)


def complete_input(
    organisation: Organisation, artifact_id: UUID, etags: Mapping[str, Sequence[str]], *, actor: str = "system"
) -> Artifact:
    """Make an input complete once every byte is there; repeating it is harmless. Raises UploadIncomplete."""
    found = Artifact.objects.filter(organisation=organisation, kind=ArtifactKind.INPUT, pk=artifact_id).first()
    if found is None:
        raise ArtifactNotFound()
    if found.state == ArtifactState.COMPLETE:
        return found
    if found.state != ArtifactState.UPLOADING:
        raise ArtifactClosed(artifact_id=str(artifact_id), state=found.state)
    verify_bytes(found.parts.get(), etags)
    with transaction.atomic():
        artifact = Artifact.objects.select_for_update().get(pk=artifact_id)
        if artifact.state != ArtifactState.COMPLETE:
            advance(artifact, ArtifactState.COMPLETE, actor=actor, completed_at=clock.now())
            artifact.parts.update(is_complete=True)
    return artifact
