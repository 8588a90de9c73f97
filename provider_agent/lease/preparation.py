"""Everything before a program starts: folders, inputs, the checkpoint to go on from, what was prepared, command and
environment."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from provider_agent.context import AgentContext
from provider_agent.devices.base import cores_of
from provider_agent.devices.memory import memory_for_leases_mib
from provider_agent.errors import ArtifactDamaged, CheckpointDamaged, ExecutorFailed, ImageUnavailable
from provider_agent.executors.base import LaunchSpec
from provider_agent.journal import read_links
from provider_agent.lease.cache.owners import load_owner, owner_folder, owners_in_use
from provider_agent.lease.cache.prepared import fetch_prepared
from provider_agent.lease.cache.room import CHANGING, GIB, keep_within
from provider_agent.lease.collecting import record_given
from provider_agent.lease.disk_use import record_share
from provider_agent.lease.fetch import fetch_artifact
from provider_agent.lease.path_checkpoints.listing import list_path
from provider_agent.lease.path_checkpoints.restoring import restore_path
from provider_agent.lease.path_checkpoints.state import CopyState
from provider_agent.lease.runtimes.base import Runtime
from provider_agent.lease.runtimes.registry import runtime_of
from provider_agent.lease.snapshot import FileLeftOut, keep_file
from provider_agent.lease.workfolder import (
    CHECKPOINT_NAME,
    RESUME_NAME,
    contract_environment,
    gang_network,
    is_joining,
    load_secrets,
    make_work_folder,
    own_port,
    program_environment,
    rendezvous_of,
)
from provider_agent.overlay import Overlay, overlay_of
from provider_agent.protocol import ArtifactDownloads, Assignment, DeviceFacts, DeviceKind, RemoteFile
from provider_agent.system.removal import remove_tree
from runtimes.contract import checkpoint_folder

CPUS_MIN = 0.1

KEEP_SECONDS_MAX = 60.0  # for copying a file that cannot be linked; then it is fetched

log = logging.getLogger(__name__)


async def prepare(context: AgentContext, assignment: Assignment) -> LaunchSpec:
    """Make the work folder and fetch what belongs in it; may be repeated as long as the program has not started."""
    runtime = runtime_of(assignment)
    folder = context.folder.lease(assignment.lease_id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    share = len(assignment.device_uuids) / len(context.devices)
    disk_mib = await context.executor.make_room(folder, disk_share=share)
    work = make_work_folder(folder, assignment)
    fetched = await runtime.fetch_input(context, assignment, folder)
    await asyncio.to_thread(record_given, work, folder)  # before the checkpoint: what it brings back is output too
    resume_path = await _fetch_checkpoint(context, assignment, work)
    await asyncio.to_thread(record_share, folder, share)
    cache = await asyncio.to_thread(_open_cache, context, folder, has_cache=runtime.has_cache(assignment))
    if cache is not None:
        await fetch_prepared(context, assignment, work, cache=cache, disk_share=1.0 if disk_mib else share)
    spec = _launch_spec(context, assignment, runtime, folder, resume_path, cache=cache, disk_mib=disk_mib, share=share)
    return replace(
        spec, shared_folders=spec.shared_folders | fetched.shared_folders, env=spec.env | fetched.environment
    )


async def _fetch_checkpoint(context: AgentContext, assignment: Assignment, work: Path) -> str:
    """Fetch the checkpoint to go on from; where it lies in the work folder, empty when the program starts anew."""
    if assignment.resume_artifact_id is None:
        return ""
    arriving = work / RESUME_NAME / "arriving"
    step = await fetch_checkpoint(context, assignment, arriving)
    target = checkpoint_folder(work / RESUME_NAME, step)
    arriving.rename(target)
    path = assignment.checkpoint.path
    if path is None:
        return f"{RESUME_NAME}/{target.name}"
    is_there = await asyncio.to_thread(restore_path, target, work, path)
    await asyncio.to_thread(remove_tree, work / RESUME_NAME)
    # What came back is no work of this lease: it is copied once something was written.
    digest = await asyncio.to_thread(_digest, work, path) if is_there else ""
    CopyState(resumed_step=step, digest=digest).save(context.folder.lease(assignment.lease_id))
    if not is_there:  # whoever saved it lied: beginning anew loses no more than the lie did
        log.warning("The checkpoint holds no %s: the program starts anew. lease_id=%s", path, assignment.lease_id)
    return path if is_there else ""


async def fetch_checkpoint(
    context: AgentContext, assignment: Assignment, into: Path, *, saved_in: Path | None = None
) -> int:
    """Fetch the checkpoint that the assignment names; its step. Raises CheckpointDamaged for bytes that differ.

    What the program of the work folder `saved_in` saved itself, and still has, is linked and not fetched.
    """
    if assignment.resume_artifact_id is None:
        raise ValueError("the assignment names no checkpoint")
    try:
        kept = partial(_keep_saved, saved_in) if saved_in is not None else None
        found = await fetch_artifact(context.client, assignment.lease_id, assignment.resume_artifact_id, into, kept)
    except ExceptionGroup as errors:
        damaged, others = errors.split(ArtifactDamaged)
        if others is not None:  # a full disk, a network that failed: this node's own, which says nothing of the bytes
            raise others from None
        if assignment.program.command:  # of its checkpoints nobody knows the shape, and nobody is judged by them
            raise
        raise CheckpointDamaged(str(damaged.exceptions[0] if damaged else errors)) from errors
    return found.step or 0


def _keep_saved(work: Path, downloads: ArtifactDownloads, remote: RemoteFile, target: Path) -> bool:
    path = checkpoint_folder(Path(CHECKPOINT_NAME), downloads.step or 0) / remote.path
    try:
        keep_file(work, path.as_posix(), target, until=time.monotonic() + KEEP_SECONDS_MAX)
    except (FileLeftOut, OSError):
        return False
    return True


def _digest(work: Path, path: str) -> str:
    return list_path(work.resolve(), path).digest()


def _launch_spec(
    context: AgentContext,
    assignment: Assignment,
    runtime: Runtime,
    folder: Path,
    resume_path: str,
    *,
    cache: Path | None,
    disk_mib: int,
    share: float,
) -> LaunchSpec:
    devices = [context.devices[uuid] for uuid in assignment.device_uuids]
    executor, config = context.executor, context.config
    seen_work = executor.seen_work(folder)
    overlay = overlay_for(context, assignment, devices)
    rendezvous = rendezvous_of(
        assignment, overlay, fabric_address=config.fabric_address, port=own_port(devices[0].index)
    )
    secrets = load_secrets(folder)
    contract = contract_environment(
        assignment,
        devices,
        seen_work=seen_work,
        seen_shared_folders=executor.seen_shared_folders(folder),
        seen_cache=executor.seen_cache(cache) if cache is not None else "",
        resume_path=resume_path,
        rendezvous=rendezvous,
        is_joining=is_joining(folder),
    )
    cores = sorted({core for device in devices for core in cores_of(device)})
    return LaunchSpec(
        lease_id=assignment.lease_id,
        folder=folder,
        argv=runtime.command_line(assignment, python=executor.python()),
        env=program_environment(
            assignment,
            secrets,
            devices,
            defaults=executor.environment(seen_work),
            contract=contract,
            network=gang_network(assignment, secrets, rendezvous, overlay=overlay, links=read_links(context.journal)),
        ),
        cores=cores,
        gpu_uuids=[device.uuid for device in devices if device.kind is DeviceKind.GPU],
        memory_mib_max=_memory_mib(assignment, share) if executor.name == "docker" else assignment.memory_mib_max,
        memory_mib_share=_memory_mib(assignment, share),
        shm_mib=_shm_mib(context, assignment, share),
        cpus_max=0.0 if cores else round(max(share * len(os.sched_getaffinity(0)), CPUS_MIN), 2),
        disk_mib_max=disk_mib,
        image=_image_for(context, assignment, runtime),
        image_registries=tuple(context.config.image_registries) if assignment.program.image else None,
        overlay=overlay,
        has_egress=assignment.network == "public" and executor.name == "docker",
        shared_folders=_shared_folders(context, assignment),
        cache=cache,
        private=context.folder.root,
        readable=(context.folder.runtimes,),
    )


def _open_cache(context: AgentContext, folder: Path, *, has_cache: bool) -> Path | None:
    """The folder with the entries of the lease's customer; None where it has none, or the provider keeps none.

    `has_cache`: its program reads them; an own command is given the environment that it needs alone, later.

    None too where the disk fails: a program runs without a cache, only longer.
    """
    owner, bytes_max = load_owner(folder), context.config.cache_gib * GIB
    try:
        with CHANGING:
            keep_within(context.folder, bytes_max=bytes_max, in_use=owners_in_use(context.folder, but=folder))
            return owner_folder(context.folder, owner) if owner and bytes_max and has_cache else None
    except OSError as error:
        log.warning("The cache could not be opened: %s lease_id=%s", error, folder.name)
        return None


def overlay_for(context: AgentContext, assignment: Assignment, devices: list[DeviceFacts]) -> Overlay | None:
    """The network of the program's gang; None without a gang, and where gangs use the nodes' own addresses.

    Raises ExecutorFailed for a gang that cannot be joined as the assignment wants.
    """
    if assignment.gang.nodes == 1:
        return None
    has_gpus = any(device.kind is DeviceKind.GPU for device in devices)
    if why := context.executor.why_no_gang(has_gpus=has_gpus):
        raise ExecutorFailed(f"Programs of this node join no gang: {why}.")
    kind = context.executor.gang(has_gpus=has_gpus)
    if kind == "address":
        if assignment.gang.overlay:
            raise ExecutorFailed("This node's programs have no network of their own, and the assignment asks for one.")
        return None
    return overlay_of(
        assignment, kind=kind, public_key=context.keys.fabric_public_hex, address=context.config.fabric_address
    )


def _memory_mib(assignment: Assignment, share: float) -> int:
    """The assignment's limit, and never more than the lease's share of what the node can spare."""
    own = int(memory_for_leases_mib() * share)
    return min(assignment.memory_mib_max or own, own)


def _shm_mib(context: AgentContext, assignment: Assignment, share: float) -> int:
    """The size of /dev/shm that the job names, 0 for none; raises ExecutorFailed where this lease cannot have it."""
    there = context.executor.shm_mib(_memory_mib(assignment, 1.0))
    if assignment.shm_mib > there * share + 1:  # the server's division is rounded
        raise ExecutorFailed(
            f"The job asks for {assignment.shm_mib} MiB of /dev/shm, and its part of this node's is"
            f" {int(there * share)} MiB."
        )
    return assignment.shm_mib


def _shared_folders(context: AgentContext, assignment: Assignment) -> dict[str, str]:
    """The shared host folders that the job names, as they are now; raises ExecutorFailed for one that is not shared."""
    lend = context.config.lend
    missing = [label for label in assignment.lent if label not in lend or not lend[label].is_dir()]
    if missing:
        raise ExecutorFailed(f"This node does not share the host folders {', '.join(missing)}.")
    return {label: str(lend[label].resolve()) for label in assignment.lent}


def _image_for(context: AgentContext, assignment: Assignment, runtime: Runtime) -> str:
    if context.executor.name == "docker":
        return assignment.program.image or runtime.image(context.config)
    if assignment.program.image:
        raise ImageUnavailable(f"This node runs no containers, so not the image {assignment.program.image}.")
    return ""
