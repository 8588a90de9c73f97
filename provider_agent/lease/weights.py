"""Stores the models of serving leases once per node: each file by its SHA-256, shared by replicas, read-only.

    <data folder>/weights/files/<sha256>       whole, verified, mode 0444; a rename put it there
    <data folder>/weights/arriving/<sha256>    what has come so far; the next try continues from its end
    <lease folder>/weights.json                what a lease uses: as long as it lies there, nothing of it is evicted
    <lease folder>/inputs/...                  the lease's view, by the artifact's own names

What a program could do to the shared bytes depends on its executor. In a container the view is a read-only bind mount,
so no user in it, root neither, can write through it, whoever owns the files. The process executor isolates nothing:
there the view holds copies that share their blocks (reflinks) where the file system has them, and else hard links,
which a program of the same user can change; a changed file is found by its size and time before the next lease uses it,
and fetched anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from pathlib import Path
from uuid import UUID

from provider_agent.client import Client, with_retries
from provider_agent.errors import ArtifactDamaged, ExecutorFailed, Retryable, Unreachable
from provider_agent.lease.fetch import PARALLEL_MAX, address_anew, safe_join
from provider_agent.protocol import RemoteFile
from provider_agent.system.atomic import write_atomically
from runtimes.contract import sha256_file

DISK_SHARE_MAX = 0.8  # of the file system, for all weights together
DISK_LEFT_BYTES_MIN = 1 << 30  # free disk space that weights never take
USES_NAME, INPUTS_NAME = "weights.json", "inputs"
FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file until one of both is written
REPORT_SECONDS = 1.0
FILES_MAX = 10_000
BREAKS_MAX = 200  # interruptions of one file's download, each after several retries

ReportProgress = Callable[[int, int], None]  # (bytes so far, bytes in all)


class WeightsCache:
    """One node's weights. One agent alone uses a data folder, so what is under way is known here."""

    def __init__(self, root: Path, leases: Path, *, bytes_max: int | None = None) -> None:
        self._files, self._arriving, self._leases = root / "files", root / "arriving", leases
        self._bytes_max = bytes_max
        self._turns: dict[str, asyncio.Lock] = {}  # a digest is fetched by one lease; the others wait for it
        self._room = asyncio.Lock()
        self._promised: dict[str, int] = {}  # sizes of what is being fetched

    async def bring(
        self,
        client: Client,
        lease_id: UUID,
        artifact_id: UUID,
        folder: Path,
        *,
        report_progress: ReportProgress,
        is_read_only: bool,
    ) -> Path:
        """The lease's view of an artifact, complete and verified; may be repeated. Raises what fetching raises.

        `is_read_only`: the program gets the view by a read-only mount, so that links to the shared files are safe.
        """
        downloads = await with_retries(lambda: client.get_artifact(lease_id, artifact_id))
        view = folder / INPUTS_NAME
        targets = [(remote, safe_join(view, remote.path)) for remote in downloads.files]
        if len(targets) > FILES_MAX:
            raise ArtifactDamaged(f"The artifact has {len(targets)} files, more than {FILES_MAX}.")
        wanted = {remote.sha256: remote for remote, _ in targets}
        for digest in wanted:
            if len(digest) != 64 or not all(letter in "0123456789abcdef" for letter in digest):
                raise ArtifactDamaged("A file's SHA-256 is none.")
        # 1. From now on nothing of it is evicted.
        write_atomically(folder / USES_NAME, json.dumps(sorted(wanted)).encode())
        # 2. What is not here, several files at once.
        progress = Progress(sum(remote.size for remote in wanted.values()), report_progress)
        await self._make_room([remote for remote in wanted.values() if not self._is_whole(remote)])
        try:
            await self._fetch_all(
                client,
                list(wanted.values()),
                progress,
                lambda remote: address_anew(client, lease_id, artifact_id, remote),
            )
        finally:
            for digest in wanted:
                self._promised.pop(digest, None)
        # 3. The view.
        await asyncio.to_thread(self._build_view, view, targets, is_read_only=is_read_only)
        return view

    async def _fetch_all(
        self,
        client: Client,
        files: list[RemoteFile],
        progress: Progress,
        again: Callable[[RemoteFile], Awaitable[RemoteFile]],
    ) -> None:
        """Every file, one that came damaged once more and from another address."""
        slots = asyncio.Semaphore(PARALLEL_MAX)

        async def fetch_one(remote: RemoteFile) -> None:
            async with slots, self._turns.setdefault(remote.sha256, asyncio.Lock()):
                if not self._is_whole(remote):
                    try:
                        await self._fetch_whole(client, remote, progress)
                    except ArtifactDamaged:
                        await self._fetch_whole(client, await again(remote), progress)
                progress.set(remote.sha256, remote.size)

        async with asyncio.TaskGroup() as group:
            for remote in files:
                group.create_task(fetch_one(remote))

    async def _fetch_whole(self, client: Client, remote: RemoteFile, progress: Progress) -> None:
        """One file, however often the line breaks, as long as each time something more has come."""
        for _ in range(BREAKS_MAX):
            before = _size(self._arriving / remote.sha256)
            try:
                return await with_retries(lambda: self._fetch(client, remote, progress))
            except Retryable:
                if _size(self._arriving / remote.sha256) <= before:
                    raise
        raise Unreachable(f"{remote.path} broke off {BREAKS_MAX} times.")

    async def _fetch(self, client: Client, remote: RemoteFile, progress: Progress) -> None:
        """One file, from where an earlier try ended; what does not match its digest is dropped whole."""
        self._arriving.mkdir(parents=True, exist_ok=True)
        self._files.mkdir(parents=True, exist_ok=True)
        partial = self._arriving / remote.sha256
        digest, size = await asyncio.to_thread(_digest_so_far, partial, remote.size)
        with partial.open("ab") as out:

            def keep(chunk: bytes) -> None:
                nonlocal size
                size += len(chunk)
                if size > remote.size:
                    raise ArtifactDamaged(f"{remote.path} is longer than the {remote.size} bytes promised.")
                digest.update(chunk)
                out.write(chunk)
                progress.set(remote.sha256, size)

            try:
                if size < remote.size:
                    await client.download(remote.url, keep, offset=size)
            except ArtifactDamaged:
                partial.unlink()
                raise
            await asyncio.to_thread(_flush, out.fileno())
        if size != remote.size or digest.hexdigest() != remote.sha256:
            partial.unlink()
            raise ArtifactDamaged(f"{remote.path} does not match its SHA-256.")
        os.utime(partial, (time.time(), 0))  # always the same time: any other one shows a change
        partial.rename(self._files / remote.sha256)

    def _is_whole(self, remote: RemoteFile) -> bool:
        """Whether it is here as it was verified; a changed one is dropped."""
        path = self._files / remote.sha256
        try:
            there = path.stat()
        except FileNotFoundError:
            return False
        if there.st_size == remote.size and there.st_mtime == 0:
            return True
        if sha256_file(path) == remote.sha256:
            os.utime(path, (time.time(), 0))
            return True
        path.unlink()
        return False

    def _build_view(self, view: Path, targets: list[tuple[RemoteFile, Path]], *, is_read_only: bool) -> None:
        shutil.rmtree(view, ignore_errors=True)
        view.mkdir()
        for remote, target in targets:
            source = self._files / remote.sha256
            source.chmod(0o444)
            target.parent.mkdir(parents=True, exist_ok=True)
            if is_read_only or not _clone(source, target):
                target.hardlink_to(source)
            os.utime(source, (time.time(), 0))  # used now
        for folder, _, _ in os.walk(view):
            Path(folder).chmod(0o755)  # a container's user reads it, whatever the agent's umask is

    async def _make_room(self, missing: list[RemoteFile]) -> None:
        """Reserve space for these files; what was used longest ago is deleted first. Raises ExecutorFailed."""
        async with self._room:
            new = [remote for remote in missing if remote.sha256 not in self._promised]
            needed = sum(max(remote.size - _size(self._arriving / remote.sha256), 0) for remote in new)
            await asyncio.to_thread(self._evict_for, needed)
            self._promised |= {remote.sha256: remote.size for remote in new}

    def _evict_for(self, needed: int) -> None:
        held = sorted(_entries(self._files, self._arriving), key=lambda path: path.stat().st_atime)
        total = sum(_size(path) for path in held)
        promised = sum(max(size - _size(self._arriving / digest), 0) for digest, size in self._promised.items())
        self._files.mkdir(parents=True, exist_ok=True)
        disk = shutil.disk_usage(self._files)
        budget = int(disk.total * DISK_SHARE_MAX) if self._bytes_max is None else self._bytes_max
        free = disk.free - DISK_LEFT_BYTES_MIN
        used = self.in_use()
        for path in held:
            if total + promised + needed <= budget and needed + promised <= free:
                return
            if path.name in used or path.name in self._promised:
                continue
            total, free = total - _size(path), free + _size(path)
            path.unlink(missing_ok=True)
        if total + promised + needed > budget or needed + promised > free:
            raise ExecutorFailed(f"There is no room for {needed} bytes of weights, beside those that are in use.")

    def in_use(self) -> set[str]:
        """Digests that live leases use: their folders are deleted when they end."""
        found: set[str] = set()
        for path in self._leases.glob(f"*/{USES_NAME}"):
            with contextlib.suppress(OSError, ValueError):
                found.update(json.loads(path.read_text()))
        return found


@lru_cache(maxsize=8)
def weights_of(data_folder: Path, leases: Path) -> WeightsCache:
    """The one cache of a data folder: each fetch sees all others."""
    return WeightsCache(data_folder / "weights", leases)


class Progress:
    """Adds up the bytes that have arrived; reports them at most once per REPORT_SECONDS, and at the end."""

    def __init__(self, total: int, report_progress: ReportProgress) -> None:
        self._total, self._report = total, report_progress
        self._sizes: dict[str, int] = {}
        self._reported_at = 0.0

    def set(self, digest: str, size: int) -> None:
        """So much of this file is here."""
        self._sizes[digest] = size
        done = sum(self._sizes.values())
        if done == self._total or time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._reported_at = time.monotonic()
            self._report(done, self._total)


def _digest_so_far(partial: Path, size_max: int) -> tuple[hashlib._Hash, int]:
    """The digest and the size of what an earlier try left; nothing of a file that is too long."""
    digest, size = hashlib.sha256(), 0
    try:
        with partial.open("rb") as source:
            while chunk := source.read(1 << 20):
                digest.update(chunk)
                size += len(chunk)
    except FileNotFoundError:
        return digest, 0
    if size > size_max:
        partial.unlink()
        return hashlib.sha256(), 0
    return digest, size


def _flush(descriptor: int) -> None:
    """Bytes before the name: a power cut must not leave a whole name with half a content."""
    os.fsync(descriptor)


def _clone(source: Path, target: Path) -> bool:
    """A copy that shares its blocks, where the file system can; nothing is left where it cannot."""
    with source.open("rb") as whole, target.open("xb") as copy:
        try:
            fcntl.ioctl(copy.fileno(), FICLONE, whole.fileno())
        except OSError:
            target.unlink()
            return False
    target.chmod(0o444)
    return True


def _entries(*folders: Path) -> Iterable[Path]:
    for folder in folders:
        if folder.is_dir():
            yield from folder.iterdir()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
