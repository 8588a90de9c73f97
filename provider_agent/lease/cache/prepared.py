"""What a training prepared for long, such as tokens, kept in the artifact store for later attempts of its job.

    send    the node of rank zero, once the training has started: the entries that took MADE_SECONDS_MIN to make, and
            longer than fetching them takes. Only while the program runs and no checkpoint waits, so that neither a
            checkpoint nor the end comes later by it. No file is copied or read for its digest: the disk is the
            training's
    fetch   before the program starts, into the work folder, where it looks for entries of its own job

Nothing of this fails an attempt: what is not fetched, or not whole, the program makes anew. The server names what a
node of this node's own provider made, and nothing else: whoever does not make them cannot tell false tokens from right
ones. For the same reason what was fetched never comes into this node's cache: that has what was made here alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from provider_agent.client import with_retries
from provider_agent.context import AgentContext
from provider_agent.errors import AgentError, Retryable
from provider_agent.executors.base import SNAPSHOTS_NAME
from provider_agent.journal import ArtifactEntry
from provider_agent.lease.artifact_shipper import PAUSE_SECONDS_FAILED, ArtifactShipper
from provider_agent.lease.cache.intake import (
    MIB,
    Left,
    find_left,
    keep_fetched,
    load_fetched,
    read_manifest,
    was_fetched,
)
from provider_agent.lease.cache.owners import load_owner
from provider_agent.lease.endings import has_started
from provider_agent.lease.fetch import fetch_artifact
from provider_agent.lease.record import LeaseRecord
from provider_agent.lease.snapshot import read_bytes, take_snapshot
from provider_agent.protocol import (
    PREPARED_BYTES_MAX,
    PREPARED_ENTRIES_MAX,
    PREPARED_MANIFEST_BYTES_MAX,
    ArtifactFile,
    Assignment,
    prepared_mistake,
)
from provider_agent.system.atomic import write_atomically
from provider_agent.system.removal import remove_tree
from runtimes.contract import MADE_SECONDS_NAME, MANIFEST_NAME, NEW_CACHE_NAME, PREPARED_KINDS

PREPARED_NAME = "prepared"  # of the snapshot
ID_NAME = "prepared-artifact"  # in the lease's folder, where the program does not reach: what to fetch
MADE_SECONDS_MIN = 60.0  # what is made in less is made anew: sending and fetching take time, too
FIND_SECONDS_MAX = 10.0
LOOK_SECONDS = 5.0  # between two looks whether the training has started
YIELD_SECONDS = 1.0  # after which a checkpoint is noticed
INTERRUPTIONS_MAX = 20  # by checkpoints, one after the other and before a single part has arrived
FETCH_SECONDS_MAX = 600.0  # nobody pays for that time, and a lease that prepares for 45 minutes is lost
FETCH_BYTES_PER_SECOND = PREPARED_BYTES_MAX / FETCH_SECONDS_MAX  # what is made faster than that is made anew
DISK_SHARE = 2  # a lease fetches what is so many times less than its part of the disk has left
END = f"/{MANIFEST_NAME}"  # of a path; before it KIND/KEY

T = TypeVar("T")

log = logging.getLogger(__name__)


def keep_prepared(lease_folder: Path, artifact_id: UUID | None) -> None:
    """Note what is to be fetched: the journal must stay readable for the agent of the release before."""
    if artifact_id is not None:
        lease_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(lease_folder / ID_NAME, str(artifact_id).encode())


def load_prepared(lease_folder: Path) -> UUID | None:
    """What is to be fetched; None: nothing."""
    try:
        return UUID((lease_folder / ID_NAME).read_text("utf-8"))
    except (OSError, ValueError):
        return None


async def fetch_prepared(
    context: AgentContext, assignment: Assignment, work: Path, *, cache: Path, disk_share: float
) -> None:
    """Fetch what the assignment named into the work folder, but for entries that are in `cache`, the customer's on this
    node. Whatever goes wrong, nothing of it is left there.

    `disk_share`: the lease's part of what the work folder's disk has left.
    """
    into, artifact_id = work / NEW_CACHE_NAME, load_prepared(context.folder.lease(assignment.lease_id))
    if artifact_id is None:
        return
    try:
        bytes_max = min(PREPARED_BYTES_MAX, int(shutil.disk_usage(work).free * disk_share) // DISK_SHARE)
        async with asyncio.timeout(FETCH_SECONDS_MAX):
            entries = await _fetch(context, assignment, artifact_id, into, cache=cache, bytes_max=bytes_max)
        log.info("Prepared data was fetched: %s lease_id=%s", ", ".join(entries) or "-", assignment.lease_id)
    except Exception as error:  # the program makes it anew
        with suppress(OSError):
            await asyncio.to_thread(remove_tree, into)
        why = str(error) or type(error).__name__
        log.warning("Prepared data was not fetched: %s lease_id=%s", why, assignment.lease_id)


async def _fetch(
    context: AgentContext, assignment: Assignment, artifact_id: UUID, into: Path, *, cache: Path, bytes_max: int
) -> list[str]:
    """The entries that were fetched, as KIND/KEY. Raises ValueError for what is none, or too large."""
    client, lease_id = context.client, assignment.lease_id
    downloads = await with_retries(lambda: client.get_artifact(lease_id, artifact_id))
    if mistake := prepared_mistake(file.path for file in downloads.files):
        raise ValueError(mistake)
    missing = [file for file in downloads.files if not (cache / file.path).parent.exists()]
    size = sum(file.size for file in missing)
    if size > bytes_max:
        raise ValueError(f"{size // MIB} MiB are too much for this lease's disk, or for {FETCH_SECONDS_MAX:.0f} s")
    digests = {file.path.removesuffix(END): file.sha256 for file in missing if file.path.endswith(END)}
    if missing:
        # Before it is there: what comes from another node is never taken for this program's own.
        keep_fetched(context.folder.lease(lease_id), digests)
        await fetch_artifact(client, lease_id, artifact_id, into, wanted={file.path for file in missing})
    return sorted(digests)


class PreparedShipper:
    """Sends what one lease's program prepared."""

    def __init__(self, context: AgentContext, record: LeaseRecord, checkpoints: ArtifactShipper) -> None:
        self._context, self._record, self._checkpoints = context, record, checkpoints
        # Of its own: parts that arrived are remembered while checkpoints come and go.
        self._shipper = ArtifactShipper(context, record.entry)
        self._snapshot = record.folder / SNAPSHOTS_NAME / PREPARED_NAME

    async def loop(self) -> None:
        """Return once it is sent, or need not be, or the program has ended."""
        assignment = self._record.entry.assignment
        if assignment.gang.node_rank != 0 or assignment.program.command or not load_owner(self._record.folder):
            return
        artifact = self._journaled()
        while artifact is None and self._is_running():
            if not await asyncio.to_thread(self._has_started):
                await asyncio.sleep(LOOK_SECONDS)
                continue
            artifact = await self._take()
            if artifact is None:
                return
        if artifact is not None and not artifact.shipped:
            await self._send(artifact)

    def _journaled(self) -> ArtifactEntry | None:
        """What an agent before this one took."""
        entries = self._context.journal.load_artifacts(self._record.entry.lease_id)
        return next((each for each in entries if each.kind == "prepared"), None)

    def _is_running(self) -> bool:
        entry = self._record.entry
        return not entry.has_ended and entry.exit is None and entry.stop_reason is None

    def _has_started(self) -> bool:
        """By then all entries are there. After days of preparing the event is far from the beginning."""
        return has_started(self._record.first_events()) or has_started(self._record.last_events())

    async def _take(self) -> ArtifactEntry | None:
        """Take the entries out of the program's reach; None where nothing of them is worth it, or it cannot be."""
        try:
            if not await _run_to_its_end(self._take_entries):
                return None
            artifact = ArtifactEntry(folder=PREPARED_NAME, kind="prepared", step=None, billable_ms=0)
            self._context.journal.save_artifact(self._record.entry.lease_id, artifact)
        except (AgentError, OSError, ValueError) as error:
            log.warning("Prepared data was not taken: %s lease_id=%s", error, self._record.entry.lease_id)
            await _run_to_its_end(lambda: remove_tree(self._snapshot))
            return None
        return artifact

    def _take_entries(self) -> bool:
        """Link what is worth sending; False where this program made nothing of it. Raises OSError and ValueError.

        What was fetched goes along: what is sent replaces what was there.
        """
        work = self._record.work.resolve()
        chosen = _choose(work, load_fetched(self._record.folder))
        if not any(is_new for _, is_new in chosen):
            return False
        remove_tree(self._snapshot)  # of an agent that was killed before it had journaled it
        for left, _ in chosen:
            target = self._snapshot / left.name
            if take_snapshot(work, f"{NEW_CACHE_NAME}/{left.name}", target, may_copy=False) < len(left.sizes):
                raise ValueError(f"files of {left.name} cannot be linked on this node")
        return True

    async def _send(self, artifact: ArtifactEntry) -> None:
        """Bring it to the store in the pauses between checkpoints; what arrived is not sent again."""
        lease_id, in_vain = self._record.entry.lease_id, 0
        try:
            files = await asyncio.to_thread(_listed, self._snapshot)
            while self._is_running():
                if self._checkpoints.has_waiting:
                    await asyncio.sleep(YIELD_SECONDS)
                    continue
                arrived = self._shipper.parts_arrived
                try:
                    if await self._send_until_checkpoint(artifact, files):
                        return
                except Retryable as error:
                    log.warning("Prepared data is not sent yet: %s lease_id=%s", error, lease_id)
                    await asyncio.sleep(PAUSE_SECONDS_FAILED)
                    continue
                in_vain = in_vain + 1 if self._shipper.parts_arrived <= arrived else 0
                if in_vain >= INTERRUPTIONS_MAX:
                    raise ValueError("no part of it is sent between two checkpoints")
        except (AgentError, OSError, ValueError) as error:
            log.warning("Prepared data cannot be sent: %s lease_id=%s", error, lease_id)
            self._shipper.give_up(artifact)

    async def _send_until_checkpoint(self, artifact: ArtifactEntry, files: list[ArtifactFile]) -> bool:
        """Whether it was sent; False where a checkpoint came, or the program ended. Raises what `ship` raises."""
        sending = asyncio.ensure_future(self._shipper.ship(artifact, files=files))
        try:
            while not sending.done() and self._is_running() and not self._checkpoints.has_waiting:
                await asyncio.wait({sending}, timeout=YIELD_SECONDS)
            if sending.done():
                sending.result()
                return True
            return False
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def _run_to_its_end(work: Callable[[], T]) -> T:
    """Run it in a thread, and wait for that even where the task is cancelled: who cancels it removes the folder."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


def _choose(work: Path, fetched: Mapping[str, str]) -> list[tuple[Left, bool]]:
    """The entries that are worth sending, as many as fetching takes, each with whether this program made it. Those that
    it made come first."""
    found: list[tuple[Left, bool]] = []
    for left in find_left(work, until=time.monotonic() + FIND_SECONDS_MAX):
        if left.kind not in PREPARED_KINDS:
            continue
        manifest = read_manifest(work, left)
        if _made_seconds(manifest) >= max(MADE_SECONDS_MIN, left.size / FETCH_BYTES_PER_SECOND):
            found.append((left, not was_fetched(left, manifest, fetched)))
    chosen: list[tuple[Left, bool]] = []
    for left, is_new in sorted(found, key=lambda each: not each[1]):
        size = left.size + sum(other.size for other, _ in chosen)
        if len(chosen) < PREPARED_ENTRIES_MAX and size <= PREPARED_BYTES_MAX:
            chosen.append((left, is_new))
    return chosen


def _made_seconds(manifest: bytes) -> float:
    """How long making an entry took, by its manifest; 0 where that says nothing of it."""
    try:
        seconds = json.loads(manifest)[MADE_SECONDS_NAME]
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0.0
    return seconds if isinstance(seconds, int | float) and not isinstance(seconds, bool) else 0.0


def _listed(snapshot: Path) -> list[ArtifactFile]:
    """The files of a snapshot, with the digests of their manifests: whoever fetches them compares them.

    Raises OSError and ValueError: the program may have written anything into a manifest.
    """
    files = []
    for path in sorted(snapshot.glob(f"*/*/{MANIFEST_NAME}")):
        manifest, entry = read_bytes(path, 0, PREPARED_MANIFEST_BYTES_MAX), path.parent.relative_to(snapshot).as_posix()
        digest = hashlib.sha256(manifest).hexdigest()
        files.append(ArtifactFile(path=f"{entry}/{MANIFEST_NAME}", size=len(manifest), sha256=digest))
        try:
            for each in json.loads(manifest)["files"]:
                name, size, digest = each["path"], each["size"], each["sha256"]
                files.append(ArtifactFile(path=f"{entry}/{name}", size=size, sha256=digest))
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"the manifest of {entry} lists no files") from error
    if mistake := prepared_mistake(file.path for file in files):
        raise ValueError(mistake)
    for file in files:
        if (snapshot / file.path).stat().st_size != file.size:
            raise ValueError(f"{file.path} has another size than its manifest says")
    return files
