"""Addresses of the files of a complete artifact, under names that cannot collide."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

from jobs.artifacts import copies, fallback
from jobs.artifacts.store import DOWNLOAD_URL_SECONDS, key_for
from jobs.errors import ArtifactClosed
from jobs.models import Artifact
from jobs.states import ArtifactState
from marketplace.foundation import clock
from provider_agent.protocol import ArtifactDownloads, RemoteFile


def remote_files(artifact: Artifact, *, is_damaged: bool = False) -> list[RemoteFile]:
    """Every file with its hash and an address, all nodes' parts together; raises ArtifactClosed for a partial one.

    A file that several nodes left under one name comes once where it is the same, else as node-<rank>/name.
    `is_damaged`: whoever asks got other bytes than announced, and is sent to the second copy where there is one.
    """
    if artifact.state != ArtifactState.COMPLETE:
        raise ArtifactClosed(artifact_id=str(artifact.id), state=artifact.state)
    if is_damaged:
        copies.suspect(artifact.pk)
    until = clock.now() + timedelta(seconds=DOWNLOAD_URL_SECONDS)
    parts = list(artifact.parts.filter(is_complete=True).order_by("node_rank"))
    store_of = fallback.stores_for(artifact, parts, is_damaged=is_damaged)
    hashes: defaultdict[str, set[str]] = defaultdict(set)
    for part in parts:
        for file in part.files:
            hashes[file["path"].casefold()].add(file["sha256"])
    found: dict[str, RemoteFile] = {}
    for part in parts:
        for index, file in enumerate(part.files):
            is_shared = len(hashes[file["path"].casefold()]) > 1
            path = f"node-{part.node_rank}/{file['path']}" if is_shared else file["path"]
            if path.casefold() not in found:
                key = key_for(artifact.id, part.node_rank, index)
                url = store_of(key).url_for_download(key, until=until)
                found[path.casefold()] = RemoteFile(path=path, size=file["size"], sha256=file["sha256"], url=url)
    return list(found.values())


def describe(artifact: Artifact, *, is_damaged: bool = False) -> ArtifactDownloads:
    """The same, in the agents' protocol."""
    return ArtifactDownloads(
        artifact_id=artifact.id,
        kind=artifact.kind,
        step=artifact.step,
        files=remote_files(artifact, is_damaged=is_damaged),
    )
