"""What earlier jobs of an organisation left, as inputs of later ones.

find_result       the output of one job, by its id or by the name of the one that completed last
find_results      of everything that a job file names under `inputs`
require_complete  lock what a new job is given
require_apart     its own files, and what earlier jobs left, are in folders of their own
keep_results      hold them for a new job: they are not deleted before it has ended
results_of        what a job was given: folder below input/ -> artifact
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from jobs.errors import InputMixed, InputNotReady, ResultNotReady
from jobs.models import Artifact, ArtifactKind, ArtifactPart, Job, JobInput
from jobs.spec import Spec
from jobs.spec.task_fields import TRAINED_FOLDER
from marketplace.accounts.models import Organisation

_JOB_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def find_result(organisation: Organisation, given: str) -> Artifact | None:
    """The complete output of the organisation's job with this id, or of the last one with this name; None: none."""
    outputs = Artifact.objects.complete().filter(organisation=organisation, kind=ArtifactKind.OUTPUT)
    named = {"job_id": given} if _JOB_ID.fullmatch(given) else {"job__name": given}
    return outputs.filter(**named).order_by("-completed_at").first()


def find_results(organisation: Organisation, spec: Spec) -> dict[str, Artifact]:
    """Folder -> artifact, of all that the spec names; raises ResultNotReady for the first that is not there."""
    found: dict[str, Artifact] = {}
    for folder, result in spec.inputs.items():
        artifact = find_result(organisation, result.job)
        if artifact is None:
            raise ResultNotReady(folder=folder, job=result.job)
        found[folder] = artifact
    return found


def require_complete(given: Iterable[Artifact]) -> None:
    """Lock what a new job is given, in one order for all; raises InputNotReady for what is not, or no longer, there."""
    for artifact in sorted(set(given), key=lambda each: each.pk):
        if not Artifact.objects.stays_complete(artifact):
            raise InputNotReady(artifact_id=str(artifact.pk))


def require_apart(spec: Spec, files: Artifact | None) -> None:
    """Raise InputMixed where the job's own files lie in a folder of an earlier job's result: nobody could tell the
    weights of one from the other's.

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
