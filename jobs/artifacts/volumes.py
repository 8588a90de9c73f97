"""Volumes: an organisation's named folders in the store, put once and used by any number of jobs.

    put       a complete upload, or what a job left, becomes the newest version; the one before is superseded
    use       a job is given the newest version when it is submitted, or the one that its file names (`jobs/results.py`)
    release   a superseded version goes SOUK_VOLUME_VERSION_KEPT_DAYS after no job needs it any more; the newest stays
    delete    the whole volume, or a superseded version; what a living job was given stays until that job has ended

No bytes move. A version's row keeps its artifact from `prune.unneeded`; without it, the artifact goes as any other one
of its kind. Only what is not paid for goes in spite of its row (`charges.py`), else a volume would be storage for free.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q, Sum

from jobs.artifacts import prune
from jobs.errors import (
    ArtifactNotFound,
    InputNotReady,
    VolumeEmpty,
    VolumesFull,
    VolumeVersionInUse,
    VolumeVersionNotFound,
)
from jobs.models import Artifact, ArtifactKind, ArtifactPart, Volume, VolumeVersion
from jobs.results import find_volume
from jobs.states import ArtifactState
from jobs.wire.volumes import VERSIONS_MAX, VOLUMES_MAX
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures

RELEASED_PER_SWEEP_MAX: Final = 200

log = logging.getLogger(__name__)


def put_upload(organisation: Organisation, name: str, artifact_id: UUID, *, source: str = "") -> VolumeVersion:
    """A complete upload of the organisation becomes the volume's newest version. Raises ArtifactNotFound too."""
    found = Artifact.objects.filter(organisation=organisation, kind=ArtifactKind.INPUT, pk=artifact_id).first()
    if found is None:
        raise ArtifactNotFound()
    return put(organisation, name, found, source=source)


def put(organisation: Organisation, name: str, artifact: Artifact, *, source: str = "") -> VolumeVersion:
    """The organisation's own `artifact` becomes the volume's newest version; what is the newest already stays so.

    Raises InputNotReady where it is not complete, VolumeEmpty, VolumesFull.
    """
    with transaction.atomic():
        _take_turn(organisation)
        if not Artifact.objects.stays_complete(artifact):
            raise InputNotReady(artifact_id=str(artifact.pk))
        if not ArtifactPart.objects.filter(artifact=artifact).aggregate(sum=Sum("file_count"))["sum"]:
            origin = f"The result of job {artifact.job_id}" if artifact.job_id else f"The upload {artifact.pk}"
            raise VolumeEmpty(origin=origin)
        volume = Volume.objects.filter(organisation=organisation, name=name).first()
        newest = volume.versions.filter(superseded_at=None).first() if volume else None
        if newest is not None and newest.artifact_id == artifact.pk:
            return newest
        _require_place(organisation, volume)
        volume = volume or Volume.objects.create(organisation=organisation, name=name)
        number = newest.number + 1 if newest else 1
        volume.versions.filter(superseded_at=None).update(superseded_at=clock.now())
        version = VolumeVersion.objects.create(volume=volume, number=number, artifact=artifact, source=source)
        Artifact.objects.filter(pk=artifact.pk).update(kept_until=None, warned_at=None)
    log.info("A volume has a new version.", extra={"volume_id": str(volume.pk), "artifact_id": str(artifact.pk)})
    return version


def delete(organisation: Organisation, name: str, number: int | None = None) -> None:
    """Delete a volume with all its versions, or one version that is superseded. What was uploaded for it is deleted,
    unless a living job was given it; what a job left is kept as other outputs are. The sweep deletes the bytes.

    Raises VolumeNotFound, VolumeVersionNotFound, and VolumeVersionInUse for the newest version alone.
    """
    with transaction.atomic():
        _take_turn(organisation)
        volume = find_volume(organisation, name)
        versions = volume.versions.all() if number is None else volume.versions.filter(number=number)
        artifact_ids = list(versions.values_list("artifact_id", flat=True))
        if number is None:
            volume.delete()
        elif versions.filter(superseded_at=None).exists():
            raise VolumeVersionInUse(name=name, version=number)
        elif not versions.delete()[0]:
            raise VolumeVersionNotFound(name=name, version=number, versions="it has others")
        _let_go(artifact_ids, reason="volume_deleted")


def release_superseded() -> int:
    """Delete superseded versions that no job has needed for SOUK_VOLUME_VERSION_KEPT_DAYS; how many."""
    before = clock.now() - timedelta(days=settings.SOUK_VOLUME_VERSION_KEPT_DAYS)
    idle = Exists(prune.unneeded_by_jobs(before).filter(pk=OuterRef("artifact_id")))
    old = VolumeVersion.objects.filter(idle | ~Q(artifact__state=ArtifactState.COMPLETE), superseded_at__lt=before)
    released = 0
    for version in old.order_by("superseded_at")[:RELEASED_PER_SWEEP_MAX]:
        with log_failures("A version could not be released.", version_id=str(version.pk)), transaction.atomic():
            version.delete()
            _let_go([version.artifact_id], reason="superseded")
            released += 1
    return released


def _let_go(artifact_ids: Iterable[UUID], *, reason: str) -> None:
    """Delete what was uploaded and nothing needs any more. Its bytes are left to the sweep: they may be VERSIONS_MAX
    times those of any artifact, and no request waits for a store that long."""
    idle = prune.unneeded(clock.now()).filter(kind=ArtifactKind.INPUT, pk__in=list(artifact_ids))
    prune.delete(idle, reason=reason, leave_bytes=True)


def _take_turn(organisation: Organisation) -> None:
    """One change of an organisation's volumes at a time, until the transaction's end: numbers and limits hold."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"volumes of {organisation.pk}"])


def _require_place(organisation: Organisation, volume: Volume | None) -> None:
    if volume is None:
        is_full = Volume.objects.filter(organisation=organisation).count() >= VOLUMES_MAX
    else:
        is_full = volume.versions.count() >= VERSIONS_MAX
    if is_full:
        raise VolumesFull(volumes_max=VOLUMES_MAX, versions_max=VERSIONS_MAX)
