"""Everything before a program starts: folders, inputs, the checkpoint to go on from, command and environment."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import psutil

from provider_agent.devices.base import cores_of
from provider_agent.errors import ExecutorFailed, ImageUnavailable
from provider_agent.executors.base import WORK_NAME, LaunchSpec
from provider_agent.fetch import fetch_artifact
from provider_agent.overlay import Overlay, overlay_of
from provider_agent.porter import Porter
from provider_agent.protocol import Assignment, DeviceFacts, DeviceKind
from provider_agent.weights import weights_of
from provider_agent.workfolder import (
    EVENTS_NAME,
    INPUT_NAME,
    RESUME_NAME,
    command_line,
    contract_environment,
    load_secrets,
    make_work_folder,
    own_port,
    place_of,
    program_environment,
)
from runtimes.contract import Env, EventKind, EventWriter, checkpoint_folder

MEMORY_RESERVE_MIB = 2048  # of the node's memory, for the agent and the engine
CPUS_MIN = 0.1
MIB = 1024**2
INPUT_LABEL = ".input"  # beside what the node lends; no label of theirs begins with a dot


async def prepare(porter: Porter, assignment: Assignment) -> LaunchSpec:
    """Make the work folder and fetch what belongs in it; may be repeated as long as the program has not started."""
    folder = porter.folder.lease(assignment.lease_id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    share = len(assignment.device_uuids) / len(porter.devices)
    disk_mib = await porter.executor.make_room(folder, disk_share=share)
    work = make_work_folder(folder, assignment)
    shared: dict[str, str] = {}
    if assignment.input_artifact_id is not None and assignment.program.runtime == "serve":
        shared[INPUT_LABEL] = str(await _bring_weights(porter, assignment, folder, assignment.input_artifact_id))
    elif assignment.input_artifact_id is not None:
        await fetch_artifact(porter.client, assignment.lease_id, assignment.input_artifact_id, work / INPUT_NAME)
    step_folder = await _fetch_checkpoint(porter, assignment, work)
    spec = _launch_spec(porter, assignment, folder, step_folder, disk_mib=disk_mib, share=share)
    if not shared:
        return spec
    seen = f"{porter.executor.seen_lent(folder)}/{INPUT_LABEL}"
    return replace(spec, lent=spec.lent | shared, env=spec.env | {Env.INPUT_DIR: seen})


async def _bring_weights(porter: Porter, assignment: Assignment, folder: Path, artifact_id: UUID) -> Path:
    """The model of a serving lease, from what this node keeps; the program gets it as it gets what a node lends."""
    events = EventWriter(str(folder / WORK_NAME / EVENTS_NAME))

    def tell(done: int, total: int) -> None:
        events.write(EventKind.LOADING, stage="fetch", bytes=done, bytes_total=total)

    cache = weights_of(porter.folder.root, porter.folder.leases)
    is_guarded = porter.executor.name == "docker"  # its mount is read-only
    return await cache.bring(porter.client, assignment.lease_id, artifact_id, folder, tell=tell, is_guarded=is_guarded)


async def _fetch_checkpoint(porter: Porter, assignment: Assignment, work: Path) -> str:
    """Fetch the checkpoint to go on from; returns its folder's name, empty when the program starts anew."""
    if assignment.resume_artifact_id is None:
        return ""
    arriving = work / RESUME_NAME / "arriving"
    found = await fetch_artifact(porter.client, assignment.lease_id, assignment.resume_artifact_id, arriving)
    target = checkpoint_folder(work / RESUME_NAME, found.step or 0)
    arriving.rename(target)
    return target.name


def _launch_spec(
    porter: Porter, assignment: Assignment, folder: Path, step_folder: str, *, disk_mib: int, share: float
) -> LaunchSpec:
    devices = [porter.devices[uuid] for uuid in assignment.device_uuids]
    executor, config = porter.executor, porter.config
    seen_work = executor.seen_work(folder)
    overlay = _overlay_for(porter, assignment, devices)
    place = place_of(assignment, overlay, fabric_address=config.fabric_address, port=own_port(devices[0].index))
    contract = contract_environment(
        assignment,
        devices,
        seen_work=seen_work,
        seen_lent=executor.seen_lent(folder),
        resume_step_folder=step_folder,
        place=place,
    )
    cores = sorted({core for device in devices for core in cores_of(device)})
    return LaunchSpec(
        lease_id=assignment.lease_id,
        folder=folder,
        argv=command_line(assignment, python=executor.python()),
        env=program_environment(
            assignment,
            load_secrets(folder),
            devices,
            defaults=executor.environment(seen_work),
            contract=contract,
            place=place,
        ),
        cores=cores,
        gpu_uuids=[device.uuid for device in devices if device.kind is DeviceKind.GPU],
        memory_mib_max=_memory_mib(assignment, share) if executor.name == "docker" else assignment.memory_mib_max,
        cpus_max=0.0 if cores else round(max(share * len(os.sched_getaffinity(0)), CPUS_MIN), 2),
        disk_mib_max=disk_mib,
        image=_image_for(porter, assignment),
        overlay=overlay,
        has_egress=assignment.network == "public" and executor.name == "docker",
        lent=_lent(porter, assignment),
    )


def _overlay_for(porter: Porter, assignment: Assignment, devices: list[DeviceFacts]) -> Overlay | None:
    """The network of the program's gang; None without a gang, and where gangs use the nodes' own addresses.

    Raises ExecutorFailed for a gang that cannot be joined as the assignment wants.
    """
    if assignment.gang.nodes == 1:
        return None
    has_gpus = any(device.kind is DeviceKind.GPU for device in devices)
    if why := porter.executor.why_no_gang(has_gpus=has_gpus):
        raise ExecutorFailed(f"Programs of this node join no gang: {why}.")
    kind = porter.executor.gang(has_gpus=has_gpus)
    if kind == "address":
        if assignment.gang.overlay:
            raise ExecutorFailed("This node's programs have no network of their own, and the assignment asks for one.")
        return None
    return overlay_of(
        assignment, kind=kind, public_key=porter.keys.fabric_public_hex, address=porter.config.fabric_address
    )


def _memory_mib(assignment: Assignment, share: float) -> int:
    """The assignment's limit, and never more than the lease's share of what the node can spare."""
    total = psutil.virtual_memory().total // MIB
    own = int((total - min(MEMORY_RESERVE_MIB, total // 4)) * share)
    return min(assignment.memory_mib_max or own, own)


def _lent(porter: Porter, assignment: Assignment) -> dict[str, str]:
    """The folders that the job names, as they lie here now; raises ExecutorFailed for one that is not lent."""
    lend = porter.config.lend
    missing = [label for label in assignment.lent if label not in lend or not lend[label].is_dir()]
    if missing:
        raise ExecutorFailed(f"This node does not lend {', '.join(missing)}.")
    return {label: str(lend[label].resolve()) for label in assignment.lent}


def _image_for(porter: Porter, assignment: Assignment) -> str:
    if porter.executor.name == "docker":
        own = porter.config.serve_image if assignment.program.runtime == "serve" else porter.config.train_image
        return assignment.program.image or own
    if assignment.program.image:
        raise ImageUnavailable(f"This node runs no containers, so not the image {assignment.program.image}.")
    return ""
