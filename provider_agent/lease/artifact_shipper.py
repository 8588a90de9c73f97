"""Ships checkpoints and the output: announce the files, put their parts, complete. Repeating any step is harmless."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from dataclasses import replace
from pathlib import Path

from provider_agent.client import with_retries
from provider_agent.context import AgentContext
from provider_agent.errors import AgentError, Retryable
from provider_agent.executors.base import SNAPSHOTS_NAME, WORK_NAME, append_to_log
from provider_agent.journal import ArtifactEntry, LeaseEntry
from provider_agent.lease.collecting import collect_output
from provider_agent.lease.snapshot import take_snapshot
from provider_agent.lease.workfolder import OUTPUT_NAME
from provider_agent.protocol import ArtifactBegin, ArtifactComplete, ArtifactFile, FileUpload, UploadPart
from provider_agent.system.removal import remove_tree
from runtimes import contract

GIB = 1024**3
PARTS_PARALLEL_MAX = 4
OUTPUT_SECONDS_MAX = 900.0
OUTPUT_BYTES_IN_TIME = 32 * GIB  # what a node should bring in that time; a larger output is late by its own size
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
        self._one_at_a_time = asyncio.Lock()

    def known(self) -> set[str]:
        """Names of the folders that were taken already."""
        return {artifact.folder for artifact in self._context.journal.load_artifacts(self._entry.lease_id)}

    async def take_checkpoint(self, relative: str, *, step: int, billable_ms: int) -> None:
        """Take a complete folder out of the program's reach and journal that it must be shipped.

        Raises what take_snapshot raises, and JournalFailed.
        """
        name = snapshot_name(relative)
        await asyncio.to_thread(take_snapshot, self._work(), relative, self._snapshot(name))
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
            try:
                await self.ship(waiting[-1])
            except Retryable as error:
                log.warning("A checkpoint is not shipped yet: %s lease_id=%s", error, self._entry.lease_id)
                await asyncio.sleep(PAUSE_SECONDS_FAILED)
            except (AgentError, OSError, ValueError) as error:
                log.error("A checkpoint cannot be shipped: %s lease_id=%s", error, self._entry.lease_id)
                self._finish(waiting[-1])

    def waiting(self) -> list[ArtifactEntry]:
        """Checkpoints that were taken and not shipped; one that a newer shipped one made useless is left out."""
        artifacts = self._context.journal.load_artifacts(self._entry.lease_id)
        checkpoints = [artifact for artifact in artifacts if artifact.kind == "checkpoint"]
        newest = max((item.step or 0 for item in checkpoints if item.shipped), default=-1)
        for stale in [item for item in checkpoints if not item.shipped and (item.step or 0) < newest]:
            self._finish(stale)
        left = [item for item in checkpoints if not item.shipped and (item.step or 0) > newest]
        return sorted(left, key=lambda item: item.step or 0)

    async def ship_waiting(self) -> None:
        """Ship the newest checkpoint that waits; raises what ship raises."""
        waiting = self.waiting()
        if waiting:
            await self.ship(waiting[-1])

    async def ship(self, artifact: ArtifactEntry) -> None:
        """Bring one artifact to the server; raises Retryable, Fatal or OSError."""
        async with self._one_at_a_time:
            if any(item.folder == artifact.folder and item.shipped for item in self._artifacts()):
                return
            await self._ship(artifact)
            self._finish(artifact)
        log.info("Artifact shipped. lease_id=%s folder=%s", self._entry.lease_id, artifact.folder)

    async def ship_output(self, billable_ms: int) -> None:
        """Bring the output to the server before success is reported: what lies below output/, and of an own command
        what it made or changed beside it. Empty and of one node, it is nothing to bring;
        of a gang the server waits for every node's part, and most of them are empty.

        Raises what ship raises, JournalFailed, OSError when the node's disk takes no more, TimeoutError when the
        server stays away for too long, and ValueError when the output is too large to arrive in time.
        """
        artifact = ArtifactEntry(folder=OUTPUT_NAME, kind="output", step=None, billable_ms=billable_ms)
        await asyncio.to_thread(self._collect_output, self._snapshot(OUTPUT_NAME))
        self._context.journal.save_artifact(self._entry.lease_id, artifact)
        is_alone = self._entry.assignment.gang.nodes == 1
        if is_alone and not _paths(self._snapshot(OUTPUT_NAME)):
            return
        had_answers = True
        try:
            async with asyncio.timeout(OUTPUT_SECONDS_MAX):
                while True:
                    try:
                        return await self.ship(artifact)
                    except Retryable as error:
                        had_answers = False
                        log.warning("The output is not shipped yet: %s lease_id=%s", error, self._entry.lease_id)
        except TimeoutError:
            size = sum(path.stat().st_size for path in _paths(self._snapshot(OUTPUT_NAME)))
            if had_answers and size > OUTPUT_BYTES_IN_TIME:  # else any program could make its own attempt fail as ours
                raise ValueError(f"{size} bytes did not arrive within {OUTPUT_SECONDS_MAX:.0f} s") from None
            raise

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

    def _artifacts(self) -> list[ArtifactEntry]:
        return self._context.journal.load_artifacts(self._entry.lease_id)

    async def _ship(self, artifact: ArtifactEntry) -> None:
        client, assignment = self._context.client, self._entry.assignment
        lease_id, fence = assignment.lease_id, assignment.fence
        folder = self._snapshot(artifact.folder)
        begin = ArtifactBegin(
            kind="checkpoint" if artifact.kind == "checkpoint" else "output",
            step=artifact.step,
            billable_ms=artifact.billable_ms,
            node_rank=assignment.gang.node_rank,
            files=await asyncio.to_thread(_list_files, folder),
        )
        uploads = await with_retries(lambda: client.begin_artifact(lease_id, begin, fence=fence))
        etags = {upload.path: await self._put_file(folder, upload) for upload in uploads.uploads}
        complete = ArtifactComplete(etags=etags)
        await with_retries(lambda: client.complete_artifact(lease_id, uploads.artifact_id, complete, fence=fence))

    async def _put_file(self, folder: Path, upload: FileUpload) -> list[str]:
        """Put every part of one file, some at once; returns their ETags in order."""
        slots = asyncio.Semaphore(PARTS_PARALLEL_MAX)
        path = folder / upload.path

        async def put(part: UploadPart) -> str:
            async with slots:
                return await with_retries(
                    lambda: self._context.client.put_part(part.url, path, offset=part.offset, size=part.size)
                )

        parts = sorted(upload.parts, key=lambda part: part.number)
        return list(await asyncio.gather(*(put(part) for part in parts)))

    def _finish(self, artifact: ArtifactEntry) -> None:
        remove_tree(self._snapshot(artifact.folder))  # first: it frees space on a full disk
        self._context.journal.save_artifact(self._entry.lease_id, replace(artifact, shipped=True))

    def _snapshot(self, name: str) -> Path:
        return self._folder / SNAPSHOTS_NAME / name

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._added.wait(), seconds)
        except TimeoutError:
            return


def snapshot_name(relative: str) -> str:
    """What the snapshot of a folder below the work folder is called."""
    return relative.replace("/", "-")


def _list_files(folder: Path) -> list[ArtifactFile]:
    """Every file with its hash, the manifest among them: a fetched checkpoint must be a complete one.

    Raises TimeoutError after OUTPUT_SECONDS_MAX: the empty terabytes of a sparse file occupy no thread for ever.
    """
    until = time.monotonic() + OUTPUT_SECONDS_MAX
    return [
        ArtifactFile(path=path.relative_to(folder).as_posix(), size=path.stat().st_size, sha256=_sha256(path, until))
        for path in _paths(folder)
    ]


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
