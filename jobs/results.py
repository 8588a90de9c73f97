"""What earlier jobs of an organisation left, as inputs of later ones.

find_result     the output of one job, by its id or by the name of the one that completed last
find_results    of everything that a job file names under `inputs`
keep_results    hold them for a new job: they are not deleted before it has ended
results_of      what a job was given: folder below input/ -> artifact
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from jobs.errors import InputNotReady, ResultNotReady
from jobs.models import Artifact, ArtifactKind, Job, JobInput
from jobs.spec import Spec
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


def keep_results(job: Job, found: Mapping[str, Artifact]) -> None:
    """Give them to a new job, in the transaction that makes it; raises InputNotReady for one that was just deleted."""
    for folder, artifact in sorted(found.items()):
        if not Artifact.objects.stays_complete(artifact):
            raise InputNotReady(artifact_id=str(artifact.pk))
        JobInput.objects.create(job=job, folder=folder, artifact=artifact)


def results_of(job: Job) -> dict[str, UUID]:
    """Folder below input/ -> artifact."""
    return dict(JobInput.objects.filter(job=job).order_by("folder").values_list("folder", "artifact_id"))
