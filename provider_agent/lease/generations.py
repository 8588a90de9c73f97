"""A later generation of a gang: a lost node was replaced, and this one's program goes on with the others.

    1  the checkpoint to go on from is fetched, out of the program's reach
    2  the gang's network has the new member in the lost one's place
    3  later checkpoints are forgotten here: other nodes lack their part
    4  the checkpoint is moved to the program, and its launcher is told (runtimes/generations.py)
    5  no checkpoint is taken before the launcher says that the old ranks have ended

Steps 1 to 4 may be repeated: an agent that was restarted begins anew, as long as the program was not told.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path

from provider_agent.context import AgentContext
from provider_agent.executors.base import SNAPSHOTS_NAME, Handle
from provider_agent.lease.artifact_shipper import ArtifactShipper
from provider_agent.lease.preparation import fetch_checkpoint, overlay_for
from provider_agent.lease.record import LeaseRecord
from provider_agent.lease.snapshot import read_bytes
from provider_agent.lease.walking import OPEN_FOLDER
from provider_agent.lease.workfolder import RESUME_NAME, rendezvous_of
from provider_agent.system.removal import remove_tree
from runtimes.contract import GANG_FILE, GANG_FILE_BYTES_MAX, JOINED_FILE, Env, checkpoint_folder

NUMBER_DIGITS_MAX = 10

log = logging.getLogger(__name__)


class Generations:
    """The generations of one lease's gang, as its watch follows them."""

    def __init__(self, context: AgentContext, record: LeaseRecord, shipper: ArtifactShipper) -> None:
        self._context, self._record, self._shipper = context, record, shipper
        self._preparing: asyncio.Task[None] | None = None

    def is_between(self) -> bool:
        """Whether ranks of a generation before the assignment's may still run and write."""
        number = self._record.entry.generation
        return (
            number > 0 and _number(read_bytes(self._record.work.resolve() / JOINED_FILE, 0, NUMBER_DIGITS_MAX)) < number
        )

    def tick(self, handle: Handle) -> None:
        """Begin to prepare a generation that the program was not told of; raises why that failed."""
        if self._preparing is not None:
            if self._preparing.done():
                done, self._preparing = self._preparing, None
                done.result()
            return
        number = self._record.entry.generation
        if number and self._told() < number and not self._record.stop.is_set:
            self._preparing = asyncio.create_task(self._prepare(handle))

    def cancel(self) -> None:
        """Stop preparing."""
        if self._preparing is not None:
            self._preparing.cancel()

    def _told(self) -> int:
        """The generation that the program was told of last; 0 for none."""
        try:
            body = json.loads(read_bytes(self._record.work.resolve() / GANG_FILE, 0, GANG_FILE_BYTES_MAX))
            return int(body["generation"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return 0

    async def _prepare(self, handle: Handle) -> None:
        context, folder, work = self._context, self._record.folder, self._record.work.resolve()
        assignment = self._record.entry.assignment
        number, devices = assignment.generation, [context.devices[uuid] for uuid in assignment.device_uuids]
        room = folder / SNAPSHOTS_NAME / f"generation-{number}"  # on the work folder's disk: moving moves no bytes
        await asyncio.to_thread(remove_tree, room)
        room.mkdir(parents=True)
        step, resume = 0, ""
        if assignment.resume_artifact_id is not None:
            step = await fetch_checkpoint(context, assignment, room / "arriving")
            resume = checkpoint_folder(Path(f"{RESUME_NAME}-{number}"), step).as_posix()
            (room / RESUME_NAME).mkdir()
            (room / "arriving").rename(checkpoint_folder(room / RESUME_NAME, step))
        overlay = overlay_for(context, assignment, devices)
        await context.executor.regroup(handle, overlay)
        await self._shipper.forget_checkpoints(after=step)
        rendezvous = rendezvous_of(assignment, overlay, fabric_address=context.config.fabric_address, port=0)
        environment = {
            Env.MASTER_ADDR: rendezvous.master_address,
            Env.MASTER_PORT: str(rendezvous.master_port),
            Env.RESUME_FROM: f"{context.executor.seen_work(folder)}/{resume}" if resume else "",
        }
        body = {"generation": number, "resumed_step": step, "environment": environment}
        (room / GANG_FILE).write_text(json.dumps(body))
        await asyncio.to_thread(_hand_over, room, work, number)
        log.info(
            "The gang's next generation was prepared. lease_id=%s generation=%s step=%s",
            assignment.lease_id,
            number,
            step,
        )


def _hand_over(room: Path, work: Path, number: int) -> None:
    """Move the checkpoint, then the file that names it, below `work`; a link of the program's there leads nowhere."""
    descriptor = os.open(work, OPEN_FOLDER)
    try:
        if (room / RESUME_NAME).is_dir():
            remove_tree(work / f"{RESUME_NAME}-{number}")  # of a try that was cut off
            os.rename(room / RESUME_NAME, f"{RESUME_NAME}-{number}", dst_dir_fd=descriptor)
        os.replace(room / GANG_FILE, GANG_FILE, dst_dir_fd=descriptor)
    finally:
        os.close(descriptor)
    remove_tree(room)
    for name in [RESUME_NAME, *(f"{RESUME_NAME}-{each}" for each in range(1, number))]:
        remove_tree(work / name)  # of the generations before: the ranks that read it have loaded it, or end now


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        return 0
