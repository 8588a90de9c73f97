"""A later generation of a gang: a lost node was replaced, or the gang has another size, and this one's program goes on
with the others; or it joins them, having waited for that.

    1  what waits to be shipped is forgotten: other nodes lack their part of it
    2  the launcher is told that a generation is coming, so that it waits (runtimes/generations.py)
    3  the checkpoint to go on from is fetched, out of the program's reach; what this node saved of it is linked
    4  the gang's network has its new members, and no lost ones
    5  shipped checkpoints of later steps are forgotten; the one to go on from is moved to the program, whose launcher
       is told
    6  no checkpoint is taken before the launcher says that the old ranks have ended

Steps 1 to 5 may be repeated: an agent that was restarted begins anew, as long as the program was not told, and what
failed is tried again. A program that began in this generation is told so at its start (workfolder.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from pathlib import Path

from provider_agent.context import AgentContext
from provider_agent.errors import CheckpointDamaged
from provider_agent.executors.base import SNAPSHOTS_NAME, Handle
from provider_agent.lease.artifact_shipper import ArtifactShipper
from provider_agent.lease.preparation import fetch_checkpoint, overlay_for
from provider_agent.lease.record import LeaseRecord
from provider_agent.lease.snapshot import read_bytes
from provider_agent.lease.walking import OPEN_FOLDER
from provider_agent.lease.workfolder import RESUME_NAME, rendezvous_of
from provider_agent.system.removal import remove_tree
from runtimes.contract import GANG_FILE, GANG_FILE_BYTES_MAX, Env, checkpoint_folder

TRY_AGAIN_SECONDS = 5.0
TRIES_SECONDS_MAX = 900.0  # of one generation; then the attempt ends, and another one begins

log = logging.getLogger(__name__)


class Generations:
    """The generations of one lease's gang, as its watch follows them."""

    def __init__(self, context: AgentContext, record: LeaseRecord, shipper: ArtifactShipper) -> None:
        self._context, self._record, self._shipper = context, record, shipper
        self._preparing: asyncio.Task[None] | None = None
        self._number = 0  # that is being prepared
        self._began = self._again_at = 0.0

    def is_between(self) -> bool:
        """Whether ranks of a generation before the assignment's may still run and write.

        A program whose launcher joins none (one of before, in an older image) began in the assignment's.
        """
        joined = self._record.joined_generation()
        return joined is not None and joined < self._record.entry.generation

    def tick(self, handle: Handle) -> None:
        """Begin to prepare a generation that the program was not told of; raises CheckpointDamaged, and what keeps
        failing: it ends the program."""
        if self._preparing is not None:
            if self._preparing.done():
                done, self._preparing = self._preparing, None
                self._conclude(done)
            return
        number, now = self._record.entry.generation, time.monotonic()
        if not number or self._record.stop.is_set or now < self._again_at or self._told() >= number:
            return
        if self._number != number:
            self._number, self._began = number, now
        self._preparing = asyncio.create_task(self._prepare(handle))

    def cancel(self) -> None:
        """Stop preparing."""
        if self._preparing is not None:
            self._preparing.cancel()

    def _conclude(self, done: asyncio.Task[None]) -> None:
        error = done.exception()
        if error is None:
            return
        if isinstance(error, CheckpointDamaged) or time.monotonic() - self._began > TRIES_SECONDS_MAX:
            raise error
        log.warning(
            "The gang's next generation is not prepared yet: %s lease_id=%s", error, self._record.entry.lease_id
        )
        self._again_at = time.monotonic() + TRY_AGAIN_SECONDS

    def _told(self) -> int:
        """The generation that the program was told of last, or began in; 0 for none."""
        try:
            body = json.loads(read_bytes(self._record.work.resolve() / GANG_FILE, 0, GANG_FILE_BYTES_MAX))
            return int(body["generation"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return 0

    async def _prepare(self, handle: Handle) -> None:
        context, folder, work = self._context, self._record.folder, self._record.work.resolve()
        assignment = self._record.entry.assignment
        number, devices = assignment.generation, [context.devices[uuid] for uuid in assignment.device_uuids]
        await self._shipper.forget_unshipped()
        await asyncio.to_thread(_remove_old, work, kept=self._record.joined_generation() or 0)
        room = folder / SNAPSHOTS_NAME / f"preparing-{number}"  # on the work folder's disk: moving moves no bytes
        await asyncio.to_thread(remove_tree, room)
        room.mkdir(parents=True)
        await self._tell(room, work, {"coming": number})
        step, resume = 0, ""
        if assignment.resume_artifact_id is not None:
            step = await fetch_checkpoint(context, assignment, room / "arriving", saved_in=work)
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
            Env.NODES: str(assignment.gang.nodes),
            Env.NODE_RANK: str(assignment.gang.node_rank),
            Env.ADDRESS: rendezvous.address,
        }
        if resume:
            await asyncio.to_thread(context.executor.give, room / RESUME_NAME)
            await asyncio.to_thread(_move, room / RESUME_NAME, work, f"{RESUME_NAME}-{number}")
        await self._tell(room, work, {"generation": number, "resumed_step": step, "environment": environment})
        await asyncio.to_thread(remove_tree, room)
        log.info("A generation of the gang was prepared. lease_id=%s number=%s", assignment.lease_id, number)

    async def _tell(self, room: Path, work: Path, body: dict[str, object]) -> None:
        (room / GANG_FILE).write_text(json.dumps(body))
        await asyncio.to_thread(self._context.executor.give, room / GANG_FILE)
        await asyncio.to_thread(_move, room / GANG_FILE, work, GANG_FILE)


def _remove_old(work: Path, *, kept: int) -> None:
    """Delete the checkpoints that earlier generations went on from; ranks of the present one may still read theirs."""
    own = f"{RESUME_NAME}-{kept}" if kept else RESUME_NAME
    with os.scandir(work) as entries:
        names = [entry.name for entry in entries if entry.name.partition("-")[0] == RESUME_NAME and entry.name != own]
    for name in names:
        remove_tree(work / name)


def _move(source: Path, work: Path, name: str) -> None:
    """Move a file or folder below `work`, in the place of what is there; a link that the program made leads nowhere."""
    descriptor = os.open(work, OPEN_FOLDER)
    try:
        if source.is_dir():
            remove_tree(work / name)  # of a try that was cut off
        os.replace(source, name, dst_dir_fd=descriptor)
    finally:
        os.close(descriptor)
