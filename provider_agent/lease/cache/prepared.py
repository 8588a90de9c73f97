"""What a training prepared for long, such as tokens, kept in the artifact store for later attempts of its job.

    send    the node of rank zero, once the training has started: the entries that took MADE_SECONDS_MIN to make. Only
            while the program runs and no checkpoint waits, so that neither a checkpoint nor the end comes later by it
    fetch   before the program starts, into the work folder, where it looks for entries of its own job

Nothing of this fails an attempt: what is not fetched, or not whole, the program makes anew. The server names what a
node of this node's own provider made, and nothing else: whoever does not make them cannot tell false tokens from right
ones. For the same reason what was fetched never comes into this node's cache: that has what was made here alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from uuid import UUID

from provider_agent.client import with_retries
from provider_agent.context import AgentContext
from provider_agent.errors import AgentError, Retryable
from provider_agent.executors.base import SNAPSHOTS_NAME
from provider_agent.journal import ArtifactEntry
from provider_agent.lease.artifact_shipper import PAUSE_SECONDS_FAILED, ArtifactShipper, list_files
from provider_agent.lease.cache.intake import MIB, Left, find_left, keep_fetched, load_fetched
from provider_agent.lease.cache.owners import load_owner
from provider_agent.lease.endings import has_started
from provider_agent.lease.fetch import fetch_artifact
from provider_agent.lease.record import LeaseRecord
from provider_agent.lease.snapshot import take_snapshot
from provider_agent.protocol import PREPARED_ENTRIES_MAX, ArtifactFile, Assignment, prepared_mistake
from provider_agent.system.atomic import write_atomically
from provider_agent.system.removal import remove_tree
from runtimes.contract import MADE_SECONDS_NAME, MANIFEST_NAME, NEW_CACHE_NAME, PREPARED_KINDS

PREPARED_NAME = "prepared"  # of the snapshot, and of its kind of artifact
ID_NAME = "prepared-artifact"  # in the lease's folder, where the program does not reach: what to fetch
MADE_SECONDS_MIN = 60.0  # what is made in less is made anew: sending and fetching take time, too
MANIFEST_BYTES_MAX = 1024 * 1024
FIND_SECONDS_MAX = 10.0
LOOK_SECONDS = 5.0  # between two looks whether the training has started
YIELD_SECONDS = 1.0  # after which a checkpoint is noticed
FETCH_SECONDS_MAX = 600.0  # nobody pays for that time, and a lease that prepares for 45 minutes is lost
DISK_SHARE = 2  # a node fetches what is so many times less than its disk has left

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


async def fetch_prepared(context: AgentContext, assignment: Assignment, work: Path, *, cache: Path) -> None:
    """Fetch what the assignment named into the work folder, but for entries that are in `cache`, the customer's on this
    node. Whatever goes wrong, nothing of it is left there."""
    folder, into = context.folder.lease(assignment.lease_id), work / NEW_CACHE_NAME
    artifact_id = load_prepared(folder)
    if artifact_id is None:
        return
    try:
        keep_fetched(folder, [])  # of a preparation that is repeated
        async with asyncio.timeout(FETCH_SECONDS_MAX):
            entries = await _fetch(context, assignment, artifact_id, into, cache=cache)
        keep_fetched(folder, entries)
        log.info("Prepared data was fetched: %s lease_id=%s", ", ".join(entries) or "-", assignment.lease_id)
    except Exception as error:  # the program makes it anew
        await asyncio.to_thread(remove_tree, into)
        log.warning("Prepared data was not fetched: %s lease_id=%s", error or type(error), assignment.lease_id)


async def _fetch(
    context: AgentContext, assignment: Assignment, artifact_id: UUID, into: Path, *, cache: Path
) -> list[str]:
    """The entries that were fetched, as KIND/KEY. Raises ValueError for what is none, or too large for the disk."""
    client, lease_id = context.client, assignment.lease_id
    downloads = await with_retries(lambda: client.get_artifact(lease_id, artifact_id))
    if mistake := prepared_mistake(file.path for file in downloads.files):
        raise ValueError(mistake)
    missing = [file for file in downloads.files if not (cache / file.path).parent.exists()]
    size = sum(file.size for file in missing)
    if size * DISK_SHARE > shutil.disk_usage(into.parent).free:
        raise ValueError(f"{size // MIB} MiB are too much for what this disk has left")
    if missing:
        await fetch_artifact(client, lease_id, artifact_id, into, wanted={file.path for file in missing})
    return sorted({file.path.rpartition("/")[0] for file in missing})


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
        return next((each for each in entries if each.kind == PREPARED_NAME), None)

    def _is_running(self) -> bool:
        entry = self._record.entry
        return not entry.has_ended and entry.exit is None and entry.stop_reason is None

    def _has_started(self) -> bool:
        """By then all entries are there. After days of preparing the event is far from the beginning."""
        return has_started(self._record.first_events()) or has_started(self._record.last_events())

    async def _take(self) -> ArtifactEntry | None:
        """Take the entries out of the program's reach; None where nothing of them is worth it, or it cannot be."""
        try:
            if not await asyncio.to_thread(self._take_entries):
                await asyncio.to_thread(remove_tree, self._snapshot)
                return None
            artifact = ArtifactEntry(folder=PREPARED_NAME, kind=PREPARED_NAME, step=None, billable_ms=0)
            self._context.journal.save_artifact(self._record.entry.lease_id, artifact)
        except (AgentError, OSError, ValueError) as error:
            log.warning("Prepared data was not taken: %s lease_id=%s", error, self._record.entry.lease_id)
            return None
        return artifact

    def _take_entries(self) -> bool:
        """Link all that took long; whether this program made any of it. Those that were fetched go along: what is sent
        replaces what was there."""
        work, fetched, is_new = self._record.work.resolve(), load_fetched(self._record.folder), False
        for left in islice(_prepared(work), PREPARED_ENTRIES_MAX):
            target = self._snapshot / left.name
            take_snapshot(work, f"{NEW_CACHE_NAME}/{left.name}", target)
            if _made_seconds(target) < MADE_SECONDS_MIN:
                remove_tree(target)
            else:
                is_new |= left.name not in fetched
        return is_new

    async def _send(self, artifact: ArtifactEntry) -> None:
        """Bring it to the store in the pauses between checkpoints; what arrived is not sent again."""
        lease_id = self._record.entry.lease_id
        try:
            files = await asyncio.to_thread(list_files, self._snapshot)
            while self._is_running():
                if self._checkpoints.has_waiting:
                    await asyncio.sleep(YIELD_SECONDS)
                    continue
                try:
                    if await self._send_until_checkpoint(artifact, files):
                        return
                except Retryable as error:
                    log.warning("Prepared data is not sent yet: %s lease_id=%s", error, lease_id)
                    await asyncio.sleep(PAUSE_SECONDS_FAILED)
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


def _prepared(work: Path) -> Iterator[Left]:
    """The complete entries of the kinds that are kept in the store."""
    return (left for left in find_left(work, until=time.monotonic() + FIND_SECONDS_MAX) if left.kind in PREPARED_KINDS)


def _made_seconds(entry: Path) -> float:
    """How long making an entry took, by its manifest; 0 where that says nothing of it."""
    path = entry / MANIFEST_NAME
    try:
        if path.stat().st_size > MANIFEST_BYTES_MAX:
            return 0.0
        seconds = json.loads(path.read_bytes())[MADE_SECONDS_NAME]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return 0.0
    return float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else 0.0
