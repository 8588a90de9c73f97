"""Brings an artifact's files into a folder: each inside that folder, each with the SHA-256 that was promised."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath
from uuid import UUID

from provider_agent.client import Client, with_retries
from provider_agent.errors import ArtifactDamaged, UnsafePath
from provider_agent.protocol import ArtifactDownloads, RemoteFile

PARALLEL_MAX = 4
HASH_BYTES = 1 << 20

Kept = Callable[[ArtifactDownloads, RemoteFile, Path], bool]


async def fetch_artifact(
    client: Client,
    lease_id: UUID,
    artifact_id: UUID,
    into: Path,
    kept: Kept | None = None,
    *,
    wanted: Collection[str] | None = None,
) -> ArtifactDownloads:
    """Fetch every file of an artifact below `into`; returns the server's description of it.

    `kept` puts a file that is on this node already at its target, and returns whether it did: its size and SHA-256 are
    compared like those of one that arrived, and any other is fetched. `wanted`: the paths to fetch; None: all.
    """
    downloads = await with_retries(lambda: client.get_artifact(lease_id, artifact_id))
    files = [remote for remote in downloads.files if wanted is None or remote.path in wanted]
    targets = [(remote, safe_join(into, remote.path)) for remote in files]
    slots = asyncio.Semaphore(PARALLEL_MAX)

    async def fetch_one(remote: RemoteFile, target: Path) -> None:
        async with slots:
            if kept is not None and await asyncio.to_thread(_take_kept, kept, downloads, remote, target):
                return
            try:
                await with_retries(lambda: _fetch_file(client, remote, target))
            except ArtifactDamaged:
                # Once more: a proxy's page in its place, or a body cut short, is not its uploader's.
                again = await address_anew(client, lease_id, artifact_id, remote)
                await with_retries(lambda: _fetch_file(client, again, target))

    async with asyncio.TaskGroup() as group:
        for remote, target in targets:
            group.create_task(fetch_one(remote, target))
    return downloads


async def address_anew(client: Client, lease_id: UUID, artifact_id: UUID, remote: RemoteFile) -> RemoteFile:
    """Another address of a file that came damaged: of the server's second copy, where it has one."""
    downloads = await with_retries(lambda: client.get_artifact(lease_id, artifact_id, is_damaged=True))
    alike = (each for each in downloads.files if (each.path, each.sha256) == (remote.path, remote.sha256))
    return next(alike, remote)


def safe_join(root: Path, path: str) -> Path:
    """`path` below `root`; raises UnsafePath for whatever would lie elsewhere."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or not pure.parts or ".." in pure.parts or "\0" in path or "\\" in path:
        raise UnsafePath(f"The file name {path!r} leaves its folder.")
    return root.joinpath(*pure.parts)


def _take_kept(kept: Kept, downloads: ArtifactDownloads, remote: RemoteFile, target: Path) -> bool:
    if not kept(downloads, remote, target):
        return False
    digest, left = hashlib.sha256(), remote.size
    with target.open("rb") as file:
        while left >= 0 and (chunk := file.read(HASH_BYTES)):
            left -= len(chunk)
            digest.update(chunk)
    if left == 0 and digest.hexdigest() == remote.sha256:
        return True
    target.unlink()
    return False


async def _fetch_file(client: Client, remote: RemoteFile, target: Path) -> None:
    """One file, first under a partial name; a repeat begins anew."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    digest, size = hashlib.sha256(), 0
    with partial.open("wb") as out:

        def keep(chunk: bytes) -> None:
            nonlocal size
            size += len(chunk)
            if size > remote.size:
                raise ArtifactDamaged(f"{remote.path} is longer than the {remote.size} bytes promised.")
            digest.update(chunk)
            out.write(chunk)

        await client.download(remote.url, keep)
    if size != remote.size or digest.hexdigest() != remote.sha256:
        raise ArtifactDamaged(f"{remote.path} does not match its SHA-256.")
    partial.replace(target)
