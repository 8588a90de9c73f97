"""Ships checkpoints, the output and prepared data: announce the files, put their parts, complete.

Repeating any step is harmless.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

from provider_agent.client import with_retries
from provider_agent.context import AgentContext
from provider_agent.errors import AgentError, Fatal, Retryable
from provider_agent.executors.base import SNAPSHOTS_NAME, WORK_NAME, append_to_log
from provider_agent.journal import ArtifactEntry, LeaseEntry
from provider_agent.lease.collecting import collect_output
from provider_agent.lease.snapshot import take_snapshot
from provider_agent.lease.workfolder import CHECKPOINT_NAME, OUTPUT_NAME
from provider_agent.protocol import (
    ArtifactBegin,
    ArtifactComplete,
    ArtifactFile,
    ArtifactUploads,
    FileUpload,
    UploadPart,
)
from provider_agent.system.removal import remove_tree
from runtimes import contract

GIB = 1024**3
GENERATION_PREFIX = "generation-"  # of the snapshots of all generations but the first
PARTS_PARALLEL_MAX = 4
OUTPUT_SECONDS_MAX = 900.0  # for reading the output, with more for what lies on the disk; then until each next part
READ_PER_SECOND_LEAST = 50 * 1000**2  # bytes that lie on the disk: an empty terabyte has none
SENT_PER_SECOND_LEAST = 5 * 1000**2  # the same bytes, of a line of 40 Mbit/s: so much longer it may take in all,
SENDING_SECONDS_MAX = 3600.0  # and no more than this, which nobody pays
HOLES_BYTES_IN_TIME = 32 * GIB  # what any node reads of holes in that time; more of them is late by its own size
PAUSE_SECONDS = 1.0
PAUSE_SECONDS_FAILED = 5.0

log = logging.getLogger(__name__)


class ArtifactShipper:
    """The artifacts of one lease."""

    def __init__(self, context: AgentContext, entry: LeaseEntry) -> None:
        self._context = context
        self._entry = entry
        self._folder = context.folder.lease(entry.lease_id)
        self._added = asyncio.Event()
        self._shipping: asyncio.Future[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._limit: asyncio.Timeout | None = None  # of the output
        self._until_at_most = 0.0
        self._was_read = False
        self._etags: dict[tuple[UUID, str, int, str], str] = {}  # of parts that arrived: artifact, path, number, upload

    def known(self) -> set[str]:
        """Names of the folders that were taken already."""
        return {artifact.folder for artifact in self._context.journal.load_artifacts(self._entry.lease_id)}

    async def take_checkpoint(self, relative: str, *, step: int, billable_ms: int, generation: int) -> None:
        """Take a complete folder out of the program's reach and journal that it must be shipped.

        `generation`: of the gang whose ranks wrote it. Raises what take_snapshot raises, and JournalFailed.
        """
        name = snapshot_name(relative, generation)
        await asyncio.to_thread(take_snapshot, self._work(), relative, self._snapshot(name))
        self._add_checkpoint(name, step=step, billable_ms=billable_ms)

    def add_copy(self, copy: Path, *, step: int, billable_ms: int) -> None:
        """Journal that a complete folder, which the agent itself made on the disk of the snapshots, must be shipped.

        Raises OSError, and JournalFailed.
        """
        name = snapshot_name(contract.checkpoint_folder(Path(CHECKPOINT_NAME), step).as_posix())
        remove_tree(self._snapshot(name))  # of an agent that was killed before it had journaled it
        copy.rename(self._snapshot(name))
        self._add_checkpoint(name, step=step, billable_ms=billable_ms)

    async def forget_unshipped(self) -> None:
        """Stop shipping, and forget the checkpoints that had not arrived; raises JournalFailed."""
        if self._shipping is not None:
            self._shipping.cancel()
        async with self._one_at_a_time:
            for artifact in self._artifacts():
                if artifact.kind == "checkpoint" and not artifact.shipped:
                    await self._forget([artifact.folder])

    async def forget_checkpoints(self, *, after: int) -> None:
        """Forget those of later steps that had arrived, too: such a step may come again; raises JournalFailed."""
        async with self._one_at_a_time:
            late = [each for each in self._artifacts() if each.kind == "checkpoint" and (each.step or 0) > after]
            await self._forget([artifact.folder for artifact in late])

    async def _forget(self, folders: list[str]) -> None:
        self._etags.clear()
        self._context.journal.forget_artifacts(self._entry.lease_id, folders)
        for name in folders:
            await asyncio.to_thread(remove_tree, self._snapshot(name))

    def newest_step(self) -> int:
        """Of all checkpoints that were taken of this lease; 0 without any."""
        return max((artifact.step or 0 for artifact in self._artifacts() if artifact.kind == "checkpoint"), default=0)

    def _add_checkpoint(self, name: str, *, step: int, billable_ms: int) -> None:
        artifact = ArtifactEntry(folder=name, kind="checkpoint", step=step, billable_ms=billable_ms)
        self._context.journal.save_artifact(self._entry.lease_id, artifact)
        self._added.set()

    async def loop(self) -> None:
        """Ship what was taken, newest first, until the lease has ended."""
        while not self._entry.has_ended:
            self._added.clear()
            waiting = self.waiting()
            if not waiting:
                await self._pause(PAUSE_SECONDS)
                continue
            self._shipping = asyncio.ensure_future(self.ship(waiting[-1]))
            try:
                await asyncio.wait({self._shipping})
                if not self._shipping.cancelled():  # else it was forgotten meanwhile
                    self._shipping.result()
            except Retryable as error:
                log.warning("A checkpoint is not shipped yet: %s lease_id=%s", error, self._entry.lease_id)
                await asyncio.sleep(PAUSE_SECONDS_FAILED)
            except (AgentError, OSError, ValueError) as error:
                log.error("A checkpoint cannot be shipped: %s lease_id=%s", error, self._entry.lease_id)
                if self._is_known(waiting[-1]):
                    self._finish(waiting[-1])
            finally:
                self._shipping.cancel()

    def waiting(self) -> list[ArtifactEntry]:
        """Checkpoints that were taken and not shipped; one that a newer shipped one made useless is left out."""
        newest, unshipped = self._unshipped()
        for stale in [item for item in unshipped if (item.step or 0) < newest]:
            self._finish(stale)
        left = [item for item in unshipped if (item.step or 0) > newest]
        return sorted(left, key=lambda item: item.step or 0)

    @property
    def has_waiting(self) -> bool:
        """Whether a checkpoint waits, or is on its way."""
        newest, unshipped = self._unshipped()
        return any((item.step or 0) > newest for item in unshipped)

    def _unshipped(self) -> tuple[int, list[ArtifactEntry]]:
        """The newest step that arrived, -1 without one, and the checkpoints that did not arrive."""
        checkpoints = [artifact for artifact in self._artifacts() if artifact.kind == "checkpoint"]
        newest = max((item.step or 0 for item in checkpoints if item.shipped), default=-1)
        return newest, [item for item in checkpoints if not item.shipped]

    async def ship_waiting(self) -> None:
        """Ship the newest checkpoint that waits; raises what ship raises."""
        waiting = self.waiting()
        if waiting:
            await self.ship(waiting[-1])

    async def ship(self, artifact: ArtifactEntry, *, files: list[ArtifactFile] | None = None) -> None:
        """Bring one artifact to the server; raises Retryable, Fatal or OSError.

        `files`: what `list_files` returned, where they have been read already.
        """
        async with self._one_at_a_time:
            if any(item.folder == artifact.folder and item.shipped for item in self._artifacts()):
                return
            if not self._is_known(artifact):  # forgotten while it waited for its turn
                return
            await self._ship(artifact, files)
            self._finish(artifact)
        log.info("Artifact shipped. lease_id=%s folder=%s", self._entry.lease_id, artifact.folder)

    @property
    def parts_arrived(self) -> int:
        """How many parts of what is on its way are in the store, as far as this process remembers."""
        return len(self._etags)

    def give_up(self, artifact: ArtifactEntry) -> None:
        """It is not shipped any more, and its bytes go; raises JournalFailed."""
        self._finish(artifact)

    async def ship_output(self, billable_ms: int) -> None:
        """Bring the output to the server before success is reported: what lies below output/, and of an own command
        what it made or changed beside it. Empty and of one node, it is nothing to bring;
        of a gang the server waits for every node's part, and most of them are empty.

        What broke off goes on with the parts that did not arrive. A node is paid for nothing of this, so beyond the
        first minutes, and what a line needs for its bytes, up to an hour, it takes no longer than what was paid for.
        Raises what ship raises, JournalFailed, OSError when the node's disk takes no more, TimeoutError when nothing
        arrives for too long or all of it takes too long, and ValueError when most of the output is holes that could
        not be read in time.
        """
        artifact = ArtifactEntry(folder=OUTPUT_NAME, kind="output", step=None, billable_ms=billable_ms)
        await asyncio.to_thread(self._collect_output, self._snapshot(OUTPUT_NAME))
        self._context.journal.save_artifact(self._entry.lease_id, artifact)
        is_alone = self._entry.assignment.gang.nodes == 1
        if is_alone and not _paths(self._snapshot(OUTPUT_NAME)):
            return
        found = [path.stat() for path in _paths(self._snapshot(OUTPUT_NAME))]
        now = asyncio.get_running_loop().time()
        self._was_read = False
        self._until_at_most = now + _seconds_to_read(found) + _seconds_to_send(found) + billable_ms / 1000
        try:
            async with asyncio.timeout(_seconds_to_read(found)) as self._limit:
                while True:
                    try:
                        return await self.ship(artifact)
                    except Retryable as error:
                        log.warning("The output is not shipped yet: %s lease_id=%s", error, self._entry.lease_id)
        except TimeoutError as error:
            holes = sum(max(0, each.st_size - 512 * each.st_blocks) for each in found)
            # Else any program could make its own attempt fail as ours.
            if holes > HOLES_BYTES_IN_TIME and not self._was_read:
                raise ValueError(f"{holes} bytes of holes in sparse files could not be read in time") from error
            raise TimeoutError(self._why_late(found)) from error
        finally:
            self._limit = None

    def _why_late(self, found: list[os.stat_result]) -> str:
        size, is_over = sum(each.st_size for each in found), asyncio.get_running_loop().time() >= self._until_at_most
        limit = "all the time that it may take" if is_over else f"{OUTPUT_SECONDS_MAX:.0f} s without anything new"
        return f"{size} bytes in {len(found)} files, of which {self.parts_arrived} parts had arrived after {limit}"

    def _collect_output(self, snapshot: Path) -> None:
        """Take what the program left out of its reach, and say in its log what that was."""
        assignment = self._entry.assignment
        is_own = bool(assignment.program.command)  # our own runtimes write where they should
        lines = collect_output(self._work(), self._folder, snapshot, with_beside=is_own, patterns=assignment.outputs)
        for line in lines:
            log.info("Collected: %s lease_id=%s", line, self._entry.lease_id)
        try:
            append_to_log(self._folder, lines)
        except OSError as error:  # the node's disk is full: the result is worth more than the lines
            log.warning("The lines were not written: %s lease_id=%s", error, self._entry.lease_id)

    def _work(self) -> Path:
        return (self._folder / WORK_NAME).resolve()  # our own link, to the lease's disk

    def _is_known(self, artifact: ArtifactEntry) -> bool:
        return any(each.folder == artifact.folder for each in self._artifacts())

    def _artifacts(self) -> list[ArtifactEntry]:
        return self._context.journal.load_artifacts(self._entry.lease_id)

    async def _ship(self, artifact: ArtifactEntry, files: list[ArtifactFile] | None) -> None:
        client, assignment = self._context.client, self._entry.assignment
        lease_id, fence = assignment.lease_id, assignment.fence
        folder = self._snapshot(artifact.folder)
        files = await asyncio.to_thread(list_files, folder) if files is None else files
        if artifact.kind == "output":
            self._was_read = True
            self._grant_time()
        begin = ArtifactBegin(
            kind=artifact.kind,
            step=artifact.step,
            billable_ms=artifact.billable_ms,
            node_rank=assignment.gang.node_rank,
            generation=generation_of(artifact.folder),
            files=files,
        )
        has_some = bool(self._etags)
        while True:
            uploads = await with_retries(lambda: client.begin_artifact(lease_id, begin, fence=fence))
            arrived = len(self._etags)
            try:
                etags = {each.path: await self._put_file(folder, artifact, uploads, each) for each in uploads.uploads}
                break
            except Fatal:
                if len(self._etags) == arrived:
                    raise  # else the addresses worked, and grew old: the next ones are for the same upload
        complete = ArtifactComplete(etags=etags)
        try:
            await with_retries(lambda: client.complete_artifact(lease_id, uploads.artifact_id, complete, fence=fence))
        except Fatal:
            self._etags.clear()
            if not has_some:
                raise
            await self._ship(artifact, files)  # the store may have lost the parts of the try before

    def _grant_time(self) -> None:
        """The output moves: it has the time until the next part, but no more than it has in all."""
        if self._limit is not None:
            now = asyncio.get_running_loop().time()
            self._limit.reschedule(min(self._until_at_most, now + OUTPUT_SECONDS_MAX))

    async def _put_file(
        self, folder: Path, artifact: ArtifactEntry, uploads: ArtifactUploads, upload: FileUpload
    ) -> list[str]:
        """Put every part of one file, some at once; returns their ETags in order."""
        # A checkpoint interrupts prepared data, and what is on its way then is lost.
        slots = asyncio.Semaphore(1 if artifact.kind == "prepared" else PARTS_PARALLEL_MAX)
        path = folder / upload.path

        async def put(part: UploadPart) -> str:
            key = (uploads.artifact_id, upload.path, part.number, _upload_of(part.url))
            if key not in self._etags:
                async with slots:
                    self._etags[key] = await with_retries(
                        lambda: self._context.client.put_part(part.url, path, offset=part.offset, size=part.size)
                    )
                if artifact.kind == "output":
                    self._grant_time()
            return self._etags[key]

        putting = [asyncio.ensure_future(put(part)) for part in sorted(upload.parts, key=lambda part: part.number)]
        try:
            return list(await asyncio.gather(*putting))
        finally:  # none goes on beside the next try
            for one in putting:
                one.cancel()
            await asyncio.gather(*putting, return_exceptions=True)

    def _finish(self, artifact: ArtifactEntry) -> None:
        self._etags.clear()
        remove_tree(self._snapshot(artifact.folder))  # first: it frees space on a full disk
        self._context.journal.save_artifact(self._entry.lease_id, replace(artifact, shipped=True))

    def _snapshot(self, name: str) -> Path:
        return self._folder / SNAPSHOTS_NAME / name

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._added.wait(), seconds)
        except TimeoutError:
            return


def snapshot_name(relative: str, generation: int = 0) -> str:
    """What the snapshot of a folder below the work folder is called; another one for each generation of a gang."""
    prefix = f"{GENERATION_PREFIX}{generation}-" if generation else ""
    return prefix + relative.replace("/", "-")


def generation_of(snapshot: str) -> int:
    """The generation in a snapshot's name; 0 for the first."""
    number = snapshot.removeprefix(GENERATION_PREFIX).partition("-")[0]
    return int(number) if snapshot.startswith(GENERATION_PREFIX) and number.isdecimal() else 0


def list_files(folder: Path) -> list[ArtifactFile]:
    """Every file with its hash, the manifest among them: a fetched checkpoint must be a complete one.

    Raises TimeoutError where that takes too long: the empty terabytes of a sparse file occupy no thread for ever.
    """
    paths = _paths(folder)
    until = time.monotonic() + _seconds_to_read([path.stat() for path in paths])
    return [
        ArtifactFile(path=path.relative_to(folder).as_posix(), size=path.stat().st_size, sha256=_sha256(path, until))
        for path in paths
    ]


def _seconds_to_read(found: list[os.stat_result]) -> float:
    return OUTPUT_SECONDS_MAX + sum(512 * each.st_blocks for each in found) / READ_PER_SECOND_LEAST


def _seconds_to_send(found: list[os.stat_result]) -> float:
    return min(sum(512 * each.st_blocks for each in found) / SENT_PER_SECOND_LEAST, SENDING_SECONDS_MAX)


def _upload_of(url: str) -> str:
    """Which upload of S3 a part belongs to; parts of another one do not count. The local store has one a file."""
    return dict(parse_qsl(urlsplit(url).query)).get("uploadId", "")


def _sha256(path: Path, until: float) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while chunk := source.read(contract.HASH_CHUNK_BYTES):
            digest.update(chunk)
            if time.monotonic() > until:
                raise TimeoutError(f"{path.name} could not be read in time")
    return digest.hexdigest()


def _paths(folder: Path) -> list[Path]:
    """Every file of a snapshot, by name; the folders of a snapshot are few and flat."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
