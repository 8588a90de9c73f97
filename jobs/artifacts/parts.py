"""One node's files of an artifact: where their bytes go, and whether they are all there. Talks to the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.artifacts.choice import get_store
from jobs.artifacts.store import key_for, prefix_for
from jobs.errors import UploadIncomplete
from jobs.models import ArtifactPart
from provider_agent.protocol import FileUpload, UploadPart

PATHS_SHOWN_MAX = 50


def uploads_for(part: ArtifactPart) -> list[FileUpload]:
    """Addresses for every file that is not there in full yet; asking again gives new addresses for the same upload."""
    store = get_store()
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
