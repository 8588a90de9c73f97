"""What a training prepared for long, such as tokens, kept for later attempts of its job: what a node may announce, and
which nodes are given it.

Nobody can check tokens but by making them again. A node that brought false ones would spoil the training of another
that believed it, and the checkpoints of that one would be condemned: they name other data than everybody else's. So it
is given to nodes of the provider alone whose node made it, who gains nothing by deceiving them. A sample of documents,
made again, would show tokens that are all false, but not the few of a million that somebody changed on purpose.

One a job at most: a newer one replaces it, and it goes when the job has ended, since nothing else can use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jobs.artifacts.checkpoints import listed_entry, read_json
from jobs.artifacts.prune import abandon
from jobs.errors import BadManifest
from jobs.kinds.registry import kind_of
from jobs.models import Artifact, ArtifactKind, ArtifactPart, Lease
from jobs.states import ArtifactState
from provider_agent.protocol import (
    PREPARED_BYTES_MAX,
    PREPARED_FEATURE,
    PREPARED_MANIFEST_BYTES_MAX,
    ArtifactFile,
    prepared_mistake,
)
from runtimes.contract import MANIFEST_NAME


def find_for(lease: Lease) -> Artifact | None:
    """What this lease's node may fetch: of its own job, made by a node of its own provider. None: it makes it anew."""
    features = lease.node.facts.get("runtime_features")
    if not isinstance(features, list) or PREPARED_FEATURE not in features:  # an older agent refuses the field
        return None
    job = lease.attempt.job
    if not kind_of(job).keeps_prepared(job):
        return None
    kept = Artifact.objects.complete().filter(job=job, kind=ArtifactKind.PREPARED)
    return kept.filter(parts__lease__node__provider_id=lease.node.provider_id).first()


def check_announced(lease: Lease, files: Sequence[ArtifactFile]) -> None:
    """Raise BadManifest for what this lease's program cannot have prepared, or no node fetches."""
    job, size = lease.attempt.job, sum(file.size for file in files)
    if not kind_of(job).keeps_prepared(job):
        raise BadManifest("Nothing is prepared for this job that another attempt could use.")
    if lease.node_rank != 0:
        raise BadManifest("The node of rank 0 alone brings what was prepared.")
    if mistake := prepared_mistake(file.path for file in files):
        raise BadManifest(f"This is nothing that a training prepares: {mistake}.")
    if size > PREPARED_BYTES_MAX:
        raise BadManifest(f"These are {size} bytes; no node fetches more than {PREPARED_BYTES_MAX}.")


def find_begun(lease: Lease) -> Artifact | None:
    """What this lease brings or has brought, in whichever generation of its gang: what arrived is not sent again."""
    mine = Artifact.objects.filter(kind=ArtifactKind.PREPARED, parts__lease=lease)
    return mine.filter(state__in=[ArtifactState.UPLOADING, ArtifactState.COMPLETE]).first()


def check_content(part: ArtifactPart) -> None:
    """Raise BadManifest where an entry's manifest names other files than there are; reads from the store."""
    if part.artifact.kind == ArtifactKind.PREPARED and (mistake := next(_mistakes(part), None)):
        raise BadManifest(f"This is nothing that a training prepares: {mistake}.")


def replace_begun(artifact: Artifact) -> None:
    """Give up what an attempt or generation before this one began to bring. Call it with the job's row locked."""
    begun = Artifact.objects.filter(job=artifact.job_id, kind=ArtifactKind.PREPARED, state=ArtifactState.UPLOADING)
    for each in begun.exclude(pk=artifact.pk):
        abandon(each, reason="replaced")


def _mistakes(part: ArtifactPart) -> Iterator[str]:
    entries: dict[str, set[tuple[str, int, str]]] = {}
    for file in part.files:
        entry, _, name = file["path"].rpartition("/")
        announced = entries.setdefault(entry, set())
        if name != MANIFEST_NAME:
            announced.add((name, file["size"], file["sha256"]))
    for entry, announced in entries.items():
        listed: Any = read_json(part, f"{entry}/{MANIFEST_NAME}", PREPARED_MANIFEST_BYTES_MAX).get("files")
        if not isinstance(listed, list) or {listed_entry(each) for each in listed} != announced:
            yield f"{entry}/{MANIFEST_NAME} lists other files than there are"
