"""What earlier jobs of an organisation left, and its volumes, as inputs of later jobs.

find_result       the output of one job, by its id or by the name of the one that completed last
find_volume       a volume by its name
find_version      its newest version, or the one with a number
find_results      everything that a job file names under `inputs`
require_complete  lock what a new job is given
require_apart     its own files, and what earlier jobs left, are in folders of their own
keep_results      hold them for a new job: they are not deleted before it has ended
results_of        what a job was given: folder below input/ -> artifact
name_inputs       the same as a job file would name exactly that: jobs by their ids, volumes by their versions
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final
from uuid import UUID

from django.db.models import Q

from jobs.errors import (
    InputMixed,
    InputNotReady,
    ResultNotReady,
    VolumeGone,
    VolumeNotFound,
    VolumeVersionNotFound,
)
from jobs.models import Artifact, ArtifactKind, ArtifactPart, Job, JobInput, Volume, VolumeVersion
from jobs.spec import Spec
from jobs.spec.task_fields import TRAINED_FOLDER
from jobs.states import ArtifactState
from jobs.wire.volumes import VOLUMES_MAX
from marketplace.accounts.models import Organisation

_JOB_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def find_result(organisation: Organisation, given: str) -> Artifact | None:
    """The complete output of the organisation's job with this id, or of the last one with this name; None: none."""
    outputs = Artifact.objects.complete().filter(organisation=organisation, kind=ArtifactKind.OUTPUT)
    named = {"job_id": given} if _JOB_ID.fullmatch(given) else {"job__name": given}
    return outputs.filter(**named).order_by("-completed_at").first()


def find_volume(organisation: Organisation, name: str) -> Volume:
    """The organisation's volume of this name; raises VolumeNotFound, with the nearest name, for anybody else's."""
    mine = Volume.objects.filter(organisation=organisation)
    volume = mine.filter(name=name).first()
    if volume is None:
        near = get_close_matches(name, mine.values_list("name", flat=True)[:VOLUMES_MAX], n=1)
        raise VolumeNotFound(name=name, nearest=f" Do you mean {near[0]!r}?" if near else "")
    return volume


def find_version(organisation: Organisation, name: str, number: int | None = None) -> VolumeVersion:
    """The newest version of a volume, or the one with this number.

    Raises VolumeNotFound, VolumeVersionNotFound, and VolumeGone where its files were not paid for.
    """
    volume = find_volume(organisation, name)
    wanted = Q(superseded_at=None) if number is None else Q(number=number)
    version = volume.versions.select_related("artifact").filter(wanted).first()
    if version is None:
        there = ", ".join(str(each) for each in volume.versions.order_by("number").values_list("number", flat=True))
        raise VolumeVersionNotFound(name=name, version=number, versions=f"it has {there}")
    if version.artifact.state != ArtifactState.COMPLETE:
        raise VolumeGone(name=name, version=version.number)
    return version


def find_results(organisation: Organisation, spec: Spec, *, after: Job | None = None) -> dict[str, Artifact]:
    """Folder -> artifact, of all that the spec names.

    `after`: a job of the same organisation; what it was given in a folder is found there, whatever has its name by now.
    Raises for the first that is not there: ResultNotReady of a job, and what `find_version` does of a volume.
    """
    found: dict[str, Artifact] = {}
    had = JobInput.objects.filter(job=after, job__organisation=organisation).select_related("artifact")
    known = {each.folder: each.artifact for each in had} if after else {}
    for folder, given in spec.inputs.items():
        if folder in known:
            found[folder] = known[folder]
            continue
        if given.volume is not None:
            found[folder] = find_version(organisation, given.volume, given.version).artifact
            continue
        artifact = find_result(organisation, str(given.job))
        if artifact is None:
            raise ResultNotReady(folder=folder, job=given.job)
        found[folder] = artifact
    return found


def require_complete(given: Iterable[Artifact]) -> None:
    """Lock what a new job is given, in one order for all; raises InputNotReady for what is not, or no longer, there."""
    for artifact in sorted(set(given), key=lambda each: each.pk):
        if not Artifact.objects.stays_complete(artifact):
            raise InputNotReady(artifact_id=str(artifact.pk))


def require_apart(spec: Spec, files: Artifact | None) -> None:
    """Raise InputMixed where the job's own files lie in a folder of an earlier job's result or a volume: nobody
    could tell the weights of one from the other's.

    The folder of the result that an evaluation gets counts for the training which it follows: it is given its files.
    """
    folders = {*spec.inputs, *([TRAINED_FOLDER] if spec.evaluation else [])}
    if files is None or not folders:
        return
    for part in ArtifactPart.objects.filter(artifact=files).values_list("files", flat=True):
        for file in part:
            folder = file["path"].partition("/")[0]
            if folder in folders:
                raise InputMixed(path=file["path"], folder=folder)


def keep_results(job: Job, found: Mapping[str, Artifact]) -> None:
    """Give them to a new job, in the transaction that makes it and has locked them (`require_complete`)."""
    JobInput.objects.bulk_create(
        JobInput(job=job, folder=folder, artifact=artifact) for folder, artifact in sorted(found.items())
    )


def results_of(job: Job) -> dict[str, UUID]:
    """Folder below input/ -> artifact."""
    return dict(JobInput.objects.filter(job=job).order_by("folder").values_list("folder", "artifact_id"))


def name_inputs(job: Job, spec: Spec, *, may_be_gone: bool = False) -> dict[str, dict[str, Any]]:
    """Folder -> what a job file names to get the very artifact that the job was given there.

    Raises VolumeVersionNotFound where that version of a volume was deleted meanwhile, or names it as the spec does
    where it `may_be_gone`.
    """
    named: dict[str, dict[str, Any]] = {}
    for given in JobInput.objects.filter(job=job).select_related("artifact").order_by("folder"):
        volume = spec.inputs[given.folder].volume if given.folder in spec.inputs else None
        if volume is None:
            named[given.folder] = {"job": str(given.artifact.job_id)}
            continue
        versions = VolumeVersion.objects.filter(volume__organisation=job.organisation_id, volume__name=volume)
        number = (
            versions.filter(artifact=given.artifact_id).order_by("-number").values_list("number", flat=True).first()
        )
        if number is None and not may_be_gone:
            raise VolumeVersionNotFound(name=volume, version="that the job had", versions="it was deleted")
        number = number or spec.inputs[given.folder].version
        named[given.folder] = {"volume": volume} | ({"version": number} if number else {})
    return named
