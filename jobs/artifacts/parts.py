"""One node's files of an artifact: where their bytes go, and whether they are all there. Talks to the store.

An address to PUT to stays good for hours, whatever becomes of its artifact. The local store asks here before and after
it takes bytes; a bucket asks nobody, so `urls_until` says from when on `prune` finds the last of what came too late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from jobs.artifacts.choice import get_store
from jobs.artifacts.store import UPLOAD_URL_SECONDS, artifact_of, key_for, prefix_for
from jobs.errors import ArtifactClosed, UploadIncomplete
from jobs.models import Artifact, ArtifactPart
from jobs.states import ArtifactState
from marketplace.foundation import clock
from provider_agent.protocol import FileUpload, UploadPart

PATHS_SHOWN_MAX = 50


def uploads_for(part: ArtifactPart) -> list[FileUpload]:
    """Addresses for every file that is not there in full yet; asking again gives new addresses for the same upload."""
    store = get_store()
    # Before the first address is made: no crash leaves one that nobody remembers.
    until = clock.now() + timedelta(seconds=UPLOAD_URL_SECONDS)
    ArtifactPart.objects.filter(pk=part.pk).update(urls_until=until)
    present = store.sizes(prefix_for(part.artifact_id, part.node_rank))
    uploads, is_changed = [], False
    for index, file in enumerate(part.files):
        key = key_for(part.artifact_id, part.node_rank, index)
        if present.get(key) == file["size"]:
            continue
        begun = store.begin_upload(key, file["size"], upload_id=file.get("upload_id", ""))
        if begun.upload_id != file.get("upload_id", ""):
            file["upload_id"], is_changed = begun.upload_id, True
        places = [UploadPart(number=p.number, offset=p.offset, size=p.size, url=p.url) for p in begun.parts]
        uploads.append(FileUpload(path=file["path"], parts=places))
    if is_changed:
        ArtifactPart.objects.filter(pk=part.pk, is_complete=False).update(files=part.files)
    return uploads


def verify_bytes(part: ArtifactPart, etags: Mapping[str, Sequence[str]]) -> None:
    """Every file is there with its size and, where the store knows it, its SHA-256; raises UploadIncomplete.

    Bytes with the wrong hash are deleted, so that announcing the artifact again requests them again.
    """
    wrong = [index for index, file in enumerate(part.files) if not _is_there(part, index, file, etags)]
    if wrong:
        paths = [part.files[index]["path"] for index in wrong]
        raise UploadIncomplete(paths=paths[:PATHS_SHOWN_MAX], count=len(paths))


def _is_there(part: ArtifactPart, index: int, file: Mapping[str, Any], etags: Mapping[str, Sequence[str]]) -> bool:
    store, key = get_store(), key_for(part.artifact_id, part.node_rank, index)
    given = [etag.strip('"') for etag in etags.get(file["path"], ())]  # as the header has it, or without its quotes
    try:
        stored = store.finish_upload(key, file["size"], given, upload_id=file.get("upload_id", ""))
    except UploadIncomplete:
        return False
    if stored.sha256 in {None, file["sha256"]}:
        return True
    store.delete(key)
    return False


def require_uploading(key: str) -> None:
    """Raise ArtifactClosed where the artifact of a key takes no bytes any more."""
    _refuse(key, set(ArtifactState) - {ArtifactState.UPLOADING})


def delete_late(key: str) -> None:
    """Delete a file whose artifact was given up while its bytes came, and raise ArtifactClosed.

    To be asked after they have come: whoever gives the artifact up later deletes them.
    """
    try:
        _refuse(key, {ArtifactState.ABANDONED, ArtifactState.DELETED})
    except ArtifactClosed:
        get_store().delete(key)
        raise


def _refuse(key: str, states: set[ArtifactState]) -> None:
    artifact_id = artifact_of(key)
    state = Artifact.objects.filter(pk=artifact_id, state__in=states).values_list("state", flat=True).first()
    if state is not None:
        raise ArtifactClosed(artifact_id=str(artifact_id), state=state)
