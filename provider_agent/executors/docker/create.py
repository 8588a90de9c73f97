"""One container's whole configuration. What is not here is the engine's default.

Unprivileged: no capabilities, no new privileges, system calls by an own table, read-only root, a user that is not
root, limits on memory, processes, processor and disk, no network unless the job may reach the internet (a gang's
comes later). The work folder at /souk is the only place to write that lasts; /tmp is memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

from provider_agent.executors import base
from provider_agent.executors.base import LaunchSpec
from provider_agent.executors.docker import seccomp

PIDS_MAX = 1024
TMP_BYTES = 1024**3
SHM_BYTES_MIN = 1024**3  # where a job names no size
MIB = 1024**2
ENGINE_LOG_BYTES_MIN = 64 * MIB
NANO = 10**9
SEEN_WORK = "/souk"
SEEN_SHARED_FOLDERS = "/souk-lent"
SEEN_CACHE = "/souk-cache"
LABEL = "souk.lease"
OWNER_LABEL = "souk.leases"  # the folder of the agent's leases: several agents may share an engine
CDI_KIND = "nvidia.com/gpu"
# Set in an image or by a job, these would reach programs that the engine runs outside the container, as root, while
# it makes it (CVE-2025-23266), or ask NVIDIA's hook for devices that were not rented.
FILTERED_PREFIXES = ("LD_", "NVIDIA_")


@dataclass(frozen=True)
class Protections:
    """What isolates a customer's program from the node. Tests switch one off to see its attack succeed; no
    configuration reaches them."""

    drop_capabilities: bool = True
    no_new_privileges: bool = True
    read_only_root: bool = True
    ordinary_user: bool = True
    own_seccomp: bool = True
    filter_environment: bool = True
    limit_disk: bool = True
    filter_egress: bool = True
    pids_max: int = PIDS_MAX
    log_bytes_max: int | None = None  # None: base.LOG_BYTES_MAX
    network: str = ""  # instead of the lease's own
    folders: tuple[str, ...] = ()  # of the node, mounted as they are

    @property
    def log_cap(self) -> int:
        """The most that a lease's log may hold."""
        return base.LOG_BYTES_MAX if self.log_bytes_max is None else self.log_bytes_max


def container_options(
    spec: LaunchSpec,
    *,
    image: str,
    image_environment: Iterable[str],
    user: str,
    network: str,
    dns: list[str],
    runtime: str,
    has_cdi: bool,
    protections: Protections,
) -> dict[str, Any]:
    """Arguments for the SDK's `containers.create`; `image` is an id, so that a tag cannot move meanwhile."""
    memory = spec.memory_mib_max * MIB
    log_bytes = max(4 * protections.log_cap, ENGINE_LOG_BYTES_MIN)  # the engine's own copy; JSON makes lines longer
    return {
        "image": image,
        "command": spec.argv,
        "entrypoint": [],
        "name": f"souk-{spec.lease_id}",
        "labels": {LABEL: str(spec.lease_id), OWNER_LABEL: str(spec.folder.parent)},
        "environment": environment_of(spec, image_environment, is_filtered=protections.filter_environment),
        "user": user if protections.ordinary_user else "0:0",
        "working_dir": SEEN_WORK,
        "mounts": _mounts(spec, protections),
        "read_only": protections.read_only_root,
        "tmpfs": {"/tmp": f"rw,nosuid,nodev,size={TMP_BYTES}"},  # noqa: S108 - inside the container
        "shm_size": shm_bytes(spec),
        "cap_drop": ["ALL"] if protections.drop_capabilities else [],
        "security_opt": _security_options(protections),
        "privileged": False,
        "init": True,
        "pids_limit": protections.pids_max,
        "mem_limit": memory or None,
        "memswap_limit": memory or None,  # equal to the limit: no swap
        "cpuset_cpus": ",".join(str(core) for core in spec.cores) or None,
        "nano_cpus": round(spec.cpus_max * NANO) or None,
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        "network_mode": protections.network or network,
        "dns": dns if spec.has_egress else None,
        "device_requests": _device_requests(spec.gpu_uuids, has_cdi=has_cdi),
        "log_config": LogConfig(type=LogConfig.types.JSON, config={"max-size": str(log_bytes), "max-file": "1"}),
        "runtime": runtime or None,
        "detach": True,
    }


def shm_bytes(spec: LaunchSpec) -> int:
    """The size of /dev/shm, where workers of a data loader and ranks of NCCL leave what they share.

    Without a size in the job half of the memory, as Linux does: the engine's own 64 MiB end a data loader by SIGBUS.
    What lies there counts in the container's memory, so a wide bound takes nothing from anybody.
    """
    return spec.shm_mib * MIB or max(SHM_BYTES_MIN, spec.memory_mib_max * MIB // 2)


def environment_of(spec: LaunchSpec, image_environment: Iterable[str], *, is_filtered: bool) -> dict[str, str | None]:
    """The program's variables; None takes one away that the image sets."""
    wanted: dict[str, str | None] = {**spec.env, base.MARKER: str(spec.lease_id)}
    if not is_filtered:
        return wanted
    kept = {name: value for name, value in wanted.items() if not name.startswith(FILTERED_PREFIXES)}
    removed = dict.fromkeys(filtered_names(entry.partition("=")[0] for entry in image_environment))
    return kept | removed


def filtered_names(names: Iterable[str]) -> list[str]:
    """Those of `names` that no container is given."""
    return sorted(name for name in names if name.startswith(FILTERED_PREFIXES))


def describe(spec: LaunchSpec, *, runtime: str, disk: str, protections: Protections) -> list[str]:
    """Limits and permissions of one container, a line each, for the provider's log and the customer's."""
    ways = {True: "public addresses only", False: "none"}
    network = f"the gang's alone ({spec.overlay.gang.overlay})" if spec.overlay else ways[spec.has_egress]
    processor = f"cores {','.join(map(str, spec.cores))}" if spec.cores else f"{spec.cpus_max or 'all'} cores"
    return [
        f"isolation: container ({runtime or 'runc'}), no capabilities, no new privileges, filtered system calls",
        f"memory: {f'{spec.memory_mib_max} MiB' if spec.memory_mib_max else 'no limit'}, no swap",
        f"shared memory: {shm_bytes(spec) // MIB} MiB in /dev/shm, counted in its memory",
        f"processor: {processor}; processes: {protections.pids_max}",
        f"disk: {disk}; root read-only, /tmp {TMP_BYTES // MIB} MiB of memory",
        f"log: {protections.log_cap // MIB} MiB",
        f"network: {network}",
        f"GPUs: {', '.join(spec.gpu_uuids) or 'none'}",
        f"shared host folders (read-only): {', '.join(sorted(spec.shared_folders)) or 'none'}",
    ]


def _mounts(spec: LaunchSpec, protections: Protections) -> list[Mount]:
    work = Mount(SEEN_WORK, str(spec.work.resolve()), type="bind", propagation="rprivate")
    shared = [
        Mount(f"{SEEN_SHARED_FOLDERS}/{label}", path, type="bind", read_only=True, propagation="rprivate")
        for label, path in sorted(spec.shared_folders.items())
    ]
    if spec.cache is not None:
        source = str(spec.cache.resolve())
        shared.append(Mount(SEEN_CACHE, source, type="bind", read_only=True, propagation="rprivate"))
    for mount in (work, *shared):  # a file system mounted deeper would come along, and writable
        mount["BindOptions"]["NonRecursive"] = True
    return [work, *shared, *(Mount(folder, folder, type="bind") for folder in protections.folders)]


def _security_options(protections: Protections) -> list[str]:
    options = ["no-new-privileges"] if protections.no_new_privileges else []
    if not protections.own_seccomp:
        return [*options, "seccomp=unconfined"]
    if seccomp.is_known_architecture():  # elsewhere the engine's own profile holds
        options.append(f"seccomp={json.dumps(seccomp.profile())}")
    return options


def _device_requests(gpu_uuids: list[str], *, has_cdi: bool) -> list[DeviceRequest] | None:
    if not gpu_uuids:
        return None
    if has_cdi:
        return [DeviceRequest(driver="cdi", device_ids=[f"{CDI_KIND}={uuid}" for uuid in gpu_uuids])]
    return [DeviceRequest(device_ids=gpu_uuids, capabilities=[["gpu", "compute", "utility"]])]


def has_cdi_devices(info: Mapping[str, Any], gpu_uuids: Iterable[str]) -> bool:
    """Whether the engine itself found these GPUs as CDI devices, so that no hook needs to run."""
    found = {device.get("ID") for device in info.get("DiscoveredDevices") or [] if device.get("Source") == "cdi"}
    return all(f"{CDI_KIND}={uuid}" in found for uuid in gpu_uuids)
