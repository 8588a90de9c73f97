"""How much an organisation may keep in the store: reserved when files are announced, freed when they are given up.

What counts is every artifact that is uploading or complete, by its announced size and number of files: inputs,
checkpoints and outputs. Files are counted because the list of a million empty ones fills the database all the same.
Prepared data only save time, so nothing is ever refused for them: only other prepared data count them.
"""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import Sum

from jobs.errors import StorageFull
from jobs.models import Artifact, ArtifactKind, ArtifactPart, StorageQuota
from jobs.states import ArtifactState

COUNTED = (ArtifactState.UPLOADING, ArtifactState.COMPLETE)
GIB = 1024**3


def reserve(organisation_id: UUID, size_bytes: int, files: int, *, is_prepared: bool = False) -> None:
    """Raise StorageFull unless so many more bytes and files fit; the caller's transaction writes them to an artifact.

    `is_prepared`: as many bytes must stay free beside them, for what matters more.
    One announcement of an organisation at a time, until the transaction's end: two never share the last bytes. A job's
    row is locked before, never after.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"storage of {organisation_id}"])
    kept, allowed = kept_bytes(organisation_id, with_prepared=is_prepared), allowed_bytes(organisation_id)
    listed, listed_max = kept_files(organisation_id, with_prepared=is_prepared), settings.SOUK_STORAGE_FILES_MAX
    needed = 2 * size_bytes if is_prepared else size_bytes
    if (size_bytes and kept + needed > allowed) or listed + files > listed_max:
        raise StorageFull(
            size_bytes=size_bytes,
            kept_bytes=kept,
            allowed_bytes=allowed,
            files=files,
            kept_files=listed,
            allowed_files=listed_max,
        )


def kept_bytes(organisation_id: UUID, *, with_prepared: bool = False) -> int:
    """What an organisation has announced and not given up."""
    counted = Artifact.objects.filter(organisation_id=organisation_id, state__in=COUNTED)
    counted = counted if with_prepared else counted.exclude(kind=ArtifactKind.PREPARED)
    return int(counted.aggregate(total=Sum("size_bytes"))["total"] or 0)


def kept_files(organisation_id: UUID, *, with_prepared: bool = False) -> int:
    """How many files it has announced and not given up."""
    counted = ArtifactPart.objects.filter(artifact__organisation_id=organisation_id, artifact__state__in=COUNTED)
    counted = counted if with_prepared else counted.exclude(artifact__kind=ArtifactKind.PREPARED)
    return int(counted.aggregate(total=Sum("file_count"))["total"] or 0)


def allowed_bytes(organisation_id: UUID) -> int:
    """The organisation's own quota where an operator set one, else SOUK_STORAGE_GIB_MAX."""
    own = StorageQuota.objects.filter(organisation_id=organisation_id).values_list("bytes_max", flat=True).first()
    return int(settings.SOUK_STORAGE_GIB_MAX * GIB) if own is None else own
